"""`python -m tests.support.patient_cli COMMAND`: the `rocketline` command with time limits that no busy machine reaches."""

from __future__ import annotations

from tests.support.product_limits import lengthen_limits

from rocketline.cli.entry import main

if __name__ == "__main__":
    lengthen_limits()
    main()
