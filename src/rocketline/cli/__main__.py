"""`python -m rocketline.cli`: the command where its console script is not on PATH."""

import sys

from rocketline.cli.entry import main

if __name__ == "__main__":
    sys.exit(main())
