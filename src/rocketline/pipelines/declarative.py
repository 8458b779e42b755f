"""`project`: writes the medallion pipeline as a declarative project for `spark-pipelines run`.

Spark decides which tables to update, in which order, and keeps the checkpoints. It runs over Spark Connect, whose libraries
come with the extra `spark`.
"""

from __future__ import annotations

import json
from importlib.resources import files
from pathlib import Path

from rocketline.errors import ConfigError

_SPEC = """name: rocketline-medallion
storage: {storage}
configuration:
  spark.sql.session.timeZone: UTC
  spark.sql.shuffle.partitions: "4"
libraries:
  - glob:
      include: transformations/**
"""


def write_project(target: Path, namesrv: str, topic: str, to_topic: str) -> list[Path]:
    """Write the project into a new or empty folder; returns the paths of its files."""
    if target.exists() and any(target.iterdir()):
        raise ConfigError(f"{target} is not empty: name a new folder")
    template = files("rocketline.pipelines").joinpath("medallion_project.py.txt").read_text(encoding="utf-8")
    # A JSON string is a Python literal too.
    values = {"NAMESRV": namesrv, "TOPIC": topic, "TO_TOPIC": to_topic}
    for name, value in values.items():
        template = template.replace(f"<{name}>", json.dumps(value))
    written = {
        target / "spark-pipeline.yml": _SPEC.format(storage=json.dumps((target.absolute() / "storage").as_uri())),
        target / "transformations" / "medallion.py": template,
    }
    for path, text in written.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return list(written)
