"""Runs a module until its parent is gone: `python -m sandbox.tether MODULE`, with a pipe from the parent as stdin.

Nobody writes into the pipe. It ends when the parent does, even by SIGKILL, and then the module is asked to stop.
"""

import os
import runpy
import signal
import sys
import threading


def _watch() -> None:
    while os.read(sys.stdin.fileno(), 1024):
        pass
    os.kill(os.getpid(), signal.SIGTERM)


if __name__ == "__main__":
    module = sys.argv.pop(1)
    threading.Thread(target=_watch, daemon=True).start()
    runpy.run_module(module, run_name="__main__", alter_sys=True)
