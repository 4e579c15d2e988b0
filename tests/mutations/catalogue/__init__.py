"""What is taken out of the product, and the tests that notice.

A mutation is a mechanism that a promise rests on (docs/guarantees.md), the exact text that it consists of, and what
stands there instead. Those of one copy do not meet: no test of one runs into what another took out, so that one run
shows all of them. `python -m tests.mutations` shows each alone.
"""

from collections.abc import Sequence

from tests.mutations.catalogue import first, second, seen, third
from tests.mutations.catalogue.mutation import Mutation

__all__ = ["COPIES", "Mutation"]

COPIES: Sequence[Sequence[Mutation]] = (first.MUTATIONS, second.MUTATIONS, (*third.MUTATIONS, *seen.MUTATIONS))
