"""Reads the captured bytes; README.md says where they come from."""

from __future__ import annotations

import gzip
import json
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

HERE = Path(__file__).parent


class Frame(NamedTuple):
    recording: str
    sender: str
    peer: str
    request: int
    data: bytes


@cache
def frames() -> tuple[Frame, ...]:
    with gzip.open(HERE / "frames.jsonl.gz", "rt") as lines:
        items = [json.loads(line) for line in lines]
    return tuple(
        Frame(item["recording"], item["from"], item["peer"], item["request"], bytes.fromhex(item["frame"]))
        for item in items
    )


@cache
def ids() -> dict[str, Any]:
    values: dict[str, Any] = json.loads((HERE / "ids.json").read_text())
    return values


@cache
def pop_texts() -> dict[str, Any]:
    values: dict[str, Any] = json.loads((HERE / "pop.json").read_text())
    return values


@cache
def records() -> tuple[tuple[bytes, dict[str, Any] | None], ...]:
    """(record, what its producer noted, if known)."""
    items = json.loads((HERE / "records.json").read_text())
    return tuple((bytes.fromhex(item["record"]), item["manifest"]) for item in items)


def config(name: str) -> bytes:
    return (HERE / "config" / name).read_bytes()
