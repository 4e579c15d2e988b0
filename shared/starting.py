"""What a start costs: most of it is importing, which each process does anew."""

import atexit
import gc
import os
import sys

GARBAGE = 10_000  # objects that are made, and not given back, before any is looked at


def begin() -> None:
    """To be called by a program before it imports anything else. What is imported stays, and to look through it while
    it grows is a sixth of a start.
    """
    gc.disable()
    spare_children()
    _load_logs()


def spare_children() -> None:
    """To be called before grpc is imported, which looks then. A child becomes another program at once; what grpc does
    to both until then has ended some children, and left some parents with calls that are never answered.
    """
    os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")


def settle() -> None:
    """To be called once all is loaded. It stays, so the collector of cycles need not look through it again and again,
    nor after every few hundred objects: that was a fifth of what a busy worker did. Nor at the end.
    """
    gc.freeze()
    gc.set_threshold(GARBAGE)
    gc.enable()
    atexit.register(gc.freeze)  # Python looks through all once more before it ends


def _load_logs() -> None:
    """As an image has them: where rich is installed structlog would load it, a tenth of a start, to draw the exceptions
    that our logs name only.
    """
    absent = "rich" not in sys.modules
    if absent:
        sys.modules["rich"] = None  # type: ignore[assignment]  # so that importing it fails
    import structlog  # noqa: F401

    if absent:
        del sys.modules["rich"]
