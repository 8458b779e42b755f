"""Reading a metrics page: the request, and a strict parser of Prometheus' text format.

The parser takes nothing that the format does not allow: a sample belongs to the family named last, label values are
escaped, no series comes twice, and the buckets of a histogram grow up to its count.
"""

from __future__ import annotations

import asyncio
import re
from dataclasses import dataclass, field
from typing import NamedTuple

from tests.support.patience import PATIENCE_S

_NAME = r"[a-zA-Z_:][a-zA-Z0-9_:]*"
_SAMPLE = re.compile(rf"({_NAME})(?:\{{(.*)\}})? (-?[0-9.e+-]+|\+Inf|NaN)")
_LABEL = re.compile(r'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\\n]|\\["\\n])*)"(?:,|$)')


class Answer(NamedTuple):
    status: int
    headers: dict[str, str]
    text: str


class Sample(NamedTuple):
    name: str
    labels: dict[str, str]
    value: float


@dataclass
class Scraped:
    """A family as it was read."""

    name: str
    kind: str
    help: str
    samples: list[Sample] = field(default_factory=list)

    def value(self, **labels: str) -> float:
        """The one sample that has these labels."""
        (found,) = (sample for sample in self.samples if labels.items() <= sample.labels.items())
        return found.value

    def label_values(self, name: str) -> set[str]:
        return {sample.labels[name] for sample in self.samples if name in sample.labels}


async def fetch(address: str, path: str = "/metrics", accept: str = "*/*", method: str = "GET") -> Answer:
    head = f"{method} {path} HTTP/1.1\r\nHost: {address}\r\nAccept: {accept}\r\n\r\n"
    return await ask(address, head.encode())


async def ask(address: str, data: bytes) -> Answer:
    """Whatever bytes one likes, and what comes back until the server closes."""
    host, _, port = address.rpartition(":")
    async with asyncio.timeout(PATIENCE_S):
        reader, writer = await asyncio.open_connection(host.strip("[]"), int(port))
        try:
            writer.write(data)
            said = await reader.read()
        finally:
            writer.close()
    head, _, body = said.partition(b"\r\n\r\n")
    lines = head.decode().split("\r\n")
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines[1:])}
    return Answer(int(lines[0].split()[1]), headers, body.decode())


async def scrape(address: str) -> dict[str, Scraped]:
    answer = await fetch(address)
    assert answer.status == 200, answer
    return parse(answer.text)


def parse(text: str) -> dict[str, Scraped]:
    """The families of a page by name; ValueError says which line is wrong."""
    families: dict[str, Scraped] = {}
    current: Scraped | None = None
    helps: dict[str, str] = {}
    assert text.endswith("\n")
    for line in text[:-1].split("\n"):  # no other character ends a line
        if line.startswith("# HELP "):
            name, _, help = line[7:].partition(" ")
            helps[name] = help
        elif line.startswith("# TYPE "):
            name, kind = line[7:].split(" ")
            if name in families:
                raise ValueError(f"{name} comes twice")
            current = families[name] = Scraped(name, kind, helps[name])
        elif current is None or not (found := _SAMPLE.fullmatch(line)):
            raise ValueError(f"not a sample: {line}")
        else:
            current.samples.append(Sample(found[1], _labels(found[2] or ""), float(found[3])))
    for family in families.values():
        _check(family)
    return families


def _labels(text: str) -> dict[str, str]:
    labels, position = {}, 0
    while position < len(text):
        found = _LABEL.match(text, position)
        if not found or found[1] in labels:
            raise ValueError(f"labels {text!r} at {position}")
        labels[found[1]] = re.sub(r"\\(.)", lambda match: "\n" if match[1] == "n" else match[1], found[2])
        position = found.end()
    return labels


def _check(family: Scraped) -> None:
    suffixes = ("_bucket", "_sum", "_count") if family.kind == "histogram" else ("",)
    seen = set()
    counts: dict[tuple[tuple[str, str], ...], list[float]] = {}
    for name, labels, value in family.samples:
        if name.removeprefix(family.name) not in suffixes:
            raise ValueError(f"{name} does not belong to {family.name}")
        key = (name, *sorted(labels.items()))
        if key in seen:
            raise ValueError(f"{key} comes twice")
        seen.add(key)
        if name.endswith(("_bucket", "_count")) and family.kind == "histogram":
            counts.setdefault(tuple(sorted(item for item in labels.items() if item[0] != "le")), []).append(value)
    for series, values in counts.items():
        if values != sorted(values) or values[-1] != values[-2]:
            raise ValueError(f"buckets of {family.name} {series}: {values}")
