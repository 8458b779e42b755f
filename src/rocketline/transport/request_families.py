"""How long requests took, as a family of series."""

from __future__ import annotations

from rocketline.metrics.families import Family, histogram
from rocketline.transport.timed_router import TIME_BOUNDS_MS, TimedRouter


def request_family(router: TimedRouter) -> Family:
    family = histogram("rocketmq_rpc_latency", "How long requests took.", "milliseconds", bounds=TIME_BOUNDS_MS)
    for kind, distribution in router.times():
        family.add_distribution(
            distribution,
            protocol_type="remoting",
            request_code=kind.request_name,
            response_code=kind.response_name,
            is_long_polling="true" if kind.is_held else "false",
            result=kind.result,
        )
    return family
