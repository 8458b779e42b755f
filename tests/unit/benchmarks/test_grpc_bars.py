"""The bars of the gRPC front: what counts, and on which side of each bar a figure has to be."""

from __future__ import annotations

from bench.grpc_bars import verdicts


def test_medians_and_limits_decide() -> None:
    found = verdicts({"send-1": [0.5, 1.0, 3.0], "send-64": [0.9, 0.99, 5.0]}, 0.2, 1.5)
    assert {verdict.name: verdict.is_reached for verdict in found} == {
        "send-1": True,
        "send-64": False,
        "memory": True,
        "start": False,
    }
    assert str(found[0]) == "send-1: 1.00, at least 1 wanted: reached"
    assert str(found[3]) == "start: 1.50, at most 1 wanted: NOT REACHED"
    assert found[1].shown()["is_reached"] is False
