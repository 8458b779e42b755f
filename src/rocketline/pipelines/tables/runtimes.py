"""Which runtime of a table format fits which Spark. It comes by Maven coordinates, which Spark resolves itself.

A runtime is built for one minor version of Spark and fails on others with errors of Java, so only those are used that were
tried. In November 2026, Delta Lake 4.4.0 works on Spark 4.2 and not on 4.3. Iceberg 1.12.0 is for Spark 4.1 and does not
work on 4.2 or 4.3; so Iceberg is written without a runtime (`iceberg.py`), on every Spark.
"""

from __future__ import annotations

from collections.abc import Mapping

from rocketline.errors import ConfigError

FORMATS = ("parquet", "delta", "iceberg")

_COORDINATES = {"4.2": "io.delta:delta-spark_4.2_2.13:4.4.0"}
_PACKAGES, _JARS = "spark.jars.packages", "spark.jars"
_DELTA = {
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
}


def check_format(name: str) -> None:
    if name not in FORMATS:
        raise ConfigError(f"--format {name}: there are {', '.join(FORMATS)}")


def format_settings(name: str, spark_version: str, given: Mapping[str, str]) -> dict[str, str]:
    """Settings of a session that can use a format; ConfigError when there is no runtime for this Spark.

    Who names packages of Delta Lake, or jars, chooses the runtime; other packages are fetched beside it.

    >>> format_settings("delta", "4.2.1", {})["spark.jars.packages"]
    'io.delta:delta-spark_4.2_2.13:4.4.0'
    """
    check_format(name)
    if name != "delta":
        return {}
    minor, packages = ".".join(spark_version.split(".")[:2]), given.get(_PACKAGES, "")
    if _JARS in given or "io.delta:" in packages:
        return dict(_DELTA)
    if minor not in _COORDINATES:
        there = " and ".join(_COORDINATES)
        raise ConfigError(
            f"Delta Lake has no runtime that works on Spark {spark_version}: pip install 'pyspark=={there}.*', or use "
            "--format parquet or iceberg"
        )
    return {**_DELTA, _PACKAGES: ",".join(filter(None, (packages, _COORDINATES[minor])))}
