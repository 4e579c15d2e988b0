"""Takes out each mechanism alone and says how its tests ended: `python -m tests.mutations [name] …`."""

import sys
from itertools import chain

from tests.mutations.catalogue import COPIES
from tests.mutations.copies import FAILED, copy, run


def main(names: list[str]) -> int:
    missed = 0
    for mutation in chain(*COPIES):
        if names and mutation.name not in names:
            continue
        with copy([mutation]) as folder:
            _, ended = run(folder, mutation.tests)
        found = all(ended[test].how == FAILED for test in mutation.tests)
        missed += not found
        print("noticed" if found else "MISSED ", mutation.name, [one.why[:70] for one in ended.values()], flush=True)
    return min(missed, 1)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
