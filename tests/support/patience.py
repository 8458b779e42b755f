"""How long a test waits for anything: so long that only what hangs is not there by then.

A test machine may do ten other things at once. What is waited for comes as soon as it can, so a long limit costs nothing but
when something hangs; and then pytest-timeout (`pyproject.toml`) comes later, so that the wait says itself what it lacks.
"""

from __future__ import annotations

PATIENCE_S = 900.0
PATIENCE_MS = 900_000
