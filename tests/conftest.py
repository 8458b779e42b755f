"""Settings for all tests: in CI, Hypothesis tries the same examples each time, so that a red run means a real change.

`HYPOTHESIS_PROFILE=soak` tries new ones, and where a test knows how to, many more of them.
"""

from __future__ import annotations

import os

from hypothesis import settings

settings.register_profile("ci", derandomize=True, print_blob=True)
settings.register_profile("soak", print_blob=True)
if os.environ.get("HYPOTHESIS_PROFILE") == "soak":
    settings.load_profile("soak")
elif os.environ.get("CI") == "true":
    settings.load_profile("ci")
