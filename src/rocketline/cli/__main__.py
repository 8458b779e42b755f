"""`python -m rocketline.cli`, for where the console script is not on the path."""

import sys

from rocketline.cli.entry import main

if __name__ == "__main__":
    sys.exit(main())
