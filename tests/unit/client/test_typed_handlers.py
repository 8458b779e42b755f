"""A type checker refuses handlers that cannot be called as they will be, and takes the others."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[3]
EXAMPLES = Path(__file__).parent / "data" / "typed_handlers.py"


def test_wrong_handlers_are_refused_and_no_others() -> None:
    command = [sys.executable, "-m", "mypy", "--strict", "--no-error-summary", "--hide-error-context", str(EXAMPLES)]
    said = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    refused = {int(line) for line in re.findall(r"^\S*typed_handlers\.py:(\d+): error", said.stdout, re.MULTILINE)}
    lines = EXAMPLES.read_text("utf-8").splitlines()
    expected = {number for number, line in enumerate(lines, 1) if line.endswith("# expect-error")}
    assert refused == expected, said.stdout + said.stderr
    assert len(expected) > 8
