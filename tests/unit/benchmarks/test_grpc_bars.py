"""The bars of the gRPC front: what counts, and on which side of each bar a figure has to be."""

from __future__ import annotations

from bench.grpc_bars import page_table, verdicts


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


def test_figures_become_a_table_of_the_page() -> None:
    load = {"rocketline": {"rate": 12_345.6, "cpu_us": 80.4}, "apache": {"rate": 10_000.0, "cpu_us": 91.0}}
    sides = {
        "rocketline": {"anonymous_bytes": 40 << 20, "ready_s": 0.345},
        "apache": {"anonymous_bytes": 400 << 20, "ready_s": 9.0},
    }
    assert page_table({"send-1": load}, {"send-1": [1.3, 1.1, 1.2]}, sides).splitlines()[2:] == [
        "| `send-1` | 12,346 msg/s, 80 us of CPU | 10,000 msg/s, 91 us of CPU | 1.20 (1.10-1.30) |",
        "| memory after the runs, without mapped files | 40 MiB | 400 MiB | 0.10 |",
        "| ready after | 0.34 s | 9.0 s | |",
    ]
