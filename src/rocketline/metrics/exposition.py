"""Families as text, in Prometheus' format 0.0.4 or, if asked for, OpenMetrics 1.0.0.

They differ in the name of a counter in its HELP and TYPE lines (with or without `_total`) and in the last line. The unit is
part of a name (`rocketmq_rpc_latency_milliseconds`), as in OpenTelemetry's exporter, which Apache's broker uses.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Iterable, Iterator

from rocketline.errors import BAD_ITEM
from rocketline.metrics.families import Distribution, Family, Labels, MetricKind

log = logging.getLogger(__name__)

PROMETHEUS = "text/plain; version=0.0.4; charset=utf-8"
OPENMETRICS = "application/openmetrics-text; version=1.0.0; charset=utf-8"


def wants_openmetrics(accept: str) -> bool:
    """
    >>> wants_openmetrics("application/openmetrics-text;version=1.0.0,text/plain;q=0.5"), wants_openmetrics("*/*")
    (True, False)
    """
    return "application/openmetrics-text" in accept


async def exposition(families: AsyncIterator[Family], constant: Labels, *, openmetrics: bool = False) -> bytes:
    """All families, each sample with the constant labels first; one that cannot be written down is left out."""
    parts = []
    async for family in families:
        try:
            parts.append(family_text(family, constant, openmetrics).encode())
        except BAD_ITEM as error:
            log.error("the metric %s cannot be shown: %s", family.name, error)
    if openmetrics:
        parts.append(b"# EOF\n")
    return b"".join(parts)


def exposed_name(family: Family) -> str:
    """The name with its unit, and for a counter with `_total`.

    >>> from rocketline.metrics.families import counter, gauge
    >>> exposed_name(counter("messages_in_total", "")), exposed_name(gauge("age", "", "milliseconds"))
    ('messages_in_total', 'age_milliseconds')
    """
    name = family.name.removesuffix("_total") if family.kind is MetricKind.COUNTER else family.name
    if family.unit and not name.endswith(f"_{family.unit}"):
        name = f"{name}_{family.unit}"
    return f"{name}_total" if family.kind is MetricKind.COUNTER else name


def family_text(family: Family, constant: Labels, openmetrics: bool = False) -> str:
    """The lines of a family; an empty text when it has no samples."""
    if not family.samples and not family.distributions:
        return ""
    name = exposed_name(family)
    headed = name.removesuffix("_total") if openmetrics and family.kind is MetricKind.COUNTER else name
    lines = [f"# HELP {headed} {_escaped(family.help)}", f"# TYPE {headed} {family.kind}"]
    prefix = _rendered(constant)
    for labels, value in family.samples.items():
        lines.append(f"{name}{_braced(prefix, _rendered(labels))} {_number(value)}")
    for labels, distribution in family.distributions.items():
        lines += _histogram_lines(name, _joined(prefix, _rendered(labels)), family.bounds, distribution)
    return "\n".join(lines) + "\n"


def _histogram_lines(name: str, labels: str, bounds: Iterable[float], distribution: Distribution) -> Iterator[str]:
    passed = 0
    ends = [*(f"{float(bound)!r}" for bound in bounds), "+Inf"]
    for end, count in zip(ends, distribution.counts):
        passed += count
        bound = f'le="{end}"'
        yield f"{name}_bucket{_braced(labels, bound)} {passed}"
    yield f"{name}_sum{_braced(labels)} {_number(distribution.total)}"
    yield f"{name}_count{_braced(labels)} {passed}"


def _rendered(labels: Labels) -> str:
    return ",".join(f'{name}="{_escaped(value, quotes=True)}"' for name, value in labels)


def _joined(*parts: str) -> str:
    return ",".join(part for part in parts if part)


def _braced(*parts: str) -> str:
    inside = _joined(*parts)
    return f"{{{inside}}}" if inside else ""


def _escaped(text: str, *, quotes: bool = False) -> str:
    text = text.replace("\\", "\\\\").replace("\n", "\\n")
    return text.replace('"', '\\"') if quotes else text


def _number(value: float) -> str:
    return str(value) if isinstance(value, int) else repr(float(value))
