"""Settings for all tests: in CI, Hypothesis tries the same examples each time, so that a red run means a real change."""

from __future__ import annotations

import os

from hypothesis import settings

settings.register_profile("ci", derandomize=True, print_blob=True)
if os.environ.get("CI") == "true":
    settings.load_profile("ci")
