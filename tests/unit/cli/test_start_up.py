"""A verb starts quickly because it imports little: what must stay out of its way is named here."""

from __future__ import annotations

import subprocess
import sys

import pytest

from rocketline.cli.child import cli_environment
from rocketline.testing import LocalCluster

LIMIT_S = 60
SLOW = {
    "typer", "click", "rich", "uvloop", "difflib", "pyspark", "pyarrow", "numpy", "pandas", "rocketline.broker",
    "rocketline.store", "rocketline.nameserver", "rocketline.spark", "rocketline.pipelines", "rocketline.filtering",
}  # fmt: skip
PROGRAM = """
import sys
from rocketline.cli.entry import main
code = main(sys.argv[1:])
print(*sys.modules, file=sys.stderr)
sys.exit(code)
"""


@pytest.mark.parametrize("words", ["topicList", "consumerProgress", "clusterList --output json", "doctor --pause 0"])
def test_a_verb_imports_nothing_slow(words: str) -> None:
    with LocalCluster() as cluster:
        done = subprocess.run(
            [sys.executable, "-c", PROGRAM, "admin", *words.split(), "-n", cluster.namesrv],
            capture_output=True,
            text=True,
            timeout=LIMIT_S,
            env=cli_environment(),
        )
    assert done.returncode == 0, done.stderr
    imported = set(done.stderr.split())
    assert "rocketline.admin" in imported
    assert imported & SLOW == set()
    assert not any(name.startswith("rocketline.client.consumer.") for name in imported)
