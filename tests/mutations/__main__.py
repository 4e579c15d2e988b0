"""Takes out each mechanism alone and says how its tests ended: `python -m tests.mutations [name] …`."""

import sys
from itertools import chain

from tests.mutations.catalogue import COPIES
from tests.mutations.copies import copy, missed, run


def main(names: list[str]) -> int:
    code = 0
    for mutation in chain(*COPIES):
        if names and mutation.name not in names:
            continue
        with copy([mutation]) as folder:
            _, ended = run(folder, mutation.tests)
        if wrong := missed(mutation, ended):
            code = 1
        print("MISSED " if wrong else "noticed", mutation.name, wrong or "", flush=True)
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
