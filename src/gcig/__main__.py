"""The command `gcig` as ``python -m gcig``."""

import sys

from gcig.cli import main

if __name__ == "__main__":
    sys.exit(main())
