"""The examples for Spark run; tests/spark/test_documents.py runs the one that goes on."""

from __future__ import annotations

import runpy
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from tests.support.store_files import walk_log

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

EXAMPLES = Path(__file__).resolve().parents[3] / "examples" / "spark"


def test_a_log_as_a_table(spark: SparkSession, golden: Callable[[str], Path]) -> None:
    assert {path.name for path in EXAMPLES.glob("*.py")} == {"log_to_table.py", "stream_orders.py"}, (
        "run the new one too"
    )
    root = golden("clean")
    found = runpy.run_path(str(EXAMPLES / "log_to_table.py"))["main"](str(root))
    assert dict(found) == Counter(entry.topic for entry in walk_log(root).records)
