"""`python -m notifyqueue`: the command line."""

from notifyqueue.cli import main

if __name__ == "__main__":
    main()
