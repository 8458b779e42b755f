"""A Spark that is too old is reported when the source is used, not when Spark looks for sources."""

from __future__ import annotations

import importlib
import sys

import pytest

import pyspark_rocketmq
from rocketline.errors import ConfigError


def test_an_old_spark_is_told_when_the_source_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    # What Spark 4.1 does not have.
    monkeypatch.setitem(sys.modules, "pyspark.sql.streaming.datasource", None)
    for name in ("rocketline.spark.live.source", "rocketline.spark.live.stream"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    try:
        source = importlib.reload(pyspark_rocketmq).DefaultSource
        assert source.name() == "rocketmq"
        for use in (source({}).schema, source({}).reader, source({}).streamReader):
            with pytest.raises(ConfigError, match=r"rocketmq needs PySpark 4\.2 or newer .*rocketline\[spark\]"):
                use()
    finally:
        monkeypatch.undo()
        importlib.reload(pyspark_rocketmq)
    assert pyspark_rocketmq.DefaultSource.__name__ == "LiveSource"
