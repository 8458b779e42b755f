"""Settings for all tests: nothing fails because the machine is busy.

Hypothesis has no time limits. In CI it tries the same examples each time, so that a red run means a real change;
`HYPOTHESIS_PROFILE=soak` tries new ones, and where a test knows how to, many more of them.
"""

from __future__ import annotations

import os
import signal
import sys

import pytest
from hypothesis import HealthCheck, settings

if "tests.support" not in sys.modules:  # a plugin of this package is loaded before (`tests/unit/test_other_systems.py`)
    pytest.register_assert_rewrite("tests.support")  # before anything of it is imported

from tests.support.product_limits import lengthen_limits

thorough = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow], print_blob=True)
settings.register_profile("thorough", thorough)
settings.register_profile("ci", thorough, derandomize=True)
settings.register_profile("soak", thorough)
IS_SOAK = os.environ.get("HYPOTHESIS_PROFILE") == "soak"
if IS_SOAK:
    settings.load_profile("soak")
else:
    settings.load_profile("ci" if os.environ.get("CI") == "true" else "thorough")

lengthen_limits()

# A shell starts programs in the background with SIGINT ignored, and they pass that on: tests of Ctrl-C would wait for ever.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Groups that xdist does not see would start Spark and Apache's brokers in every process."""
    if IS_SOAK:
        for item in items:
            item.add_marker(pytest.mark.timeout(0))
    if not config.getoption("loadgroup", default=False):
        return
    lost = [item.nodeid for item in items if item.get_closest_marker("xdist_group") and "@" not in item.nodeid]
    if lost:
        raise pytest.UsageError(f"pytest-xdist does not know this pytest: {lost[0]} has lost its group")
