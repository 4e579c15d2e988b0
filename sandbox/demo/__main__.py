"""`make demo`: everything is started on this machine, the day of two shops is played, and what became of it is counted.

The last line is `demo: ok …` and the exit code 0, or what is wrong is named, and it is 1.
"""

import sys

if __name__ == "__main__":
    try:
        from shared import starting

        starting.begin()
        from sandbox.demo.run import main

        starting.settle()

        sys.exit(main())
    except KeyboardInterrupt:
        print("demo: interrupted")
        sys.exit(1)
