"""`make demo`: everything is started on this machine, the day of two shops is played, and what became of it is counted.

The last line is `demo: ok …` and the exit code 0, or what is wrong is named, and it is 1.
"""

import os
import sys

if __name__ == "__main__":
    # A child here becomes another program at once. What grpc does between the two has ended some of them.
    os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")
    try:
        from shared import starting

        starting.begin()
        from sandbox.demo.run import main

        starting.settle()

        sys.exit(main())
    except KeyboardInterrupt:
        print("demo: interrupted")
        sys.exit(1)
