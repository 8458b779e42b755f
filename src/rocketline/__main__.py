"""`python -m rocketline`: the command line, also where its script is not on the path."""

from __future__ import annotations

from rocketline.cli.entry import main

if __name__ == "__main__":
    raise SystemExit(main())
