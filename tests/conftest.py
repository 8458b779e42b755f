"""Settings for all tests: in CI, Hypothesis tries the same examples each time, so that a red run means a real change.

`HYPOTHESIS_PROFILE=soak` tries new ones, and where a test knows how to, many more of them.
"""

from __future__ import annotations

import os

import pytest
from hypothesis import settings

# No deadlines: a busy machine is slow, and that is no failure.
settings.register_profile("laptop", deadline=None)
settings.register_profile("ci", deadline=None, derandomize=True, print_blob=True)
settings.register_profile("soak", deadline=None, print_blob=True)
if os.environ.get("HYPOTHESIS_PROFILE") == "soak":
    settings.load_profile("soak")
elif os.environ.get("CI") == "true":
    settings.load_profile("ci")
else:
    settings.load_profile("laptop")


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Groups that xdist does not see would start Spark and Apache's brokers in every process."""
    if not config.getoption("loadgroup", default=False):
        return
    lost = [item.nodeid for item in items if item.get_closest_marker("xdist_group") and "@" not in item.nodeid]
    if lost:
        raise pytest.UsageError(f"pytest-xdist does not know this pytest: {lost[0]} has lost its group")
