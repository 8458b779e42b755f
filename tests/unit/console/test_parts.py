"""Parts without a cluster: samples, masks, bodies, times, sorting."""

from __future__ import annotations

import pytest

from rocketline.console.bodies import body_text, hex_lines, json_tree
from rocketline.console.endpoints import ENDPOINTS, read_input
from rocketline.console.look import Look
from rocketline.console.masks import MASK, Masks
from rocketline.console.moments import moment_ms
from rocketline.console.pages.messages import csv_line
from rocketline.console.pages.traces import TraceEvent, _picture
from rocketline.console.problems import Problem
from rocketline.console.samples import FINE_IN_COARSE, FINE_POINTS, MAX_SERIES, Samples
from rocketline.console.texts import texts_of
from rocketline.console.views import ListInput, listed
from rocketline.errors import ConfigError

LOOK = Look(texts_of("en"), "Asia/Shanghai")


def test_samples_are_bounded_and_in_order() -> None:
    samples = Samples()
    for number in range(FINE_POINTS + 10):
        samples.add(number * 5000, {"in": float(number)})
    times, values = samples.read(["in", "unknown"], day=False)
    assert (len(times), times[0], times[-1]) == (FINE_POINTS, 50_000, (FINE_POINTS + 9) * 5000)
    assert values["in"][-1] == FINE_POINTS + 9
    assert set(values["unknown"]) == {None}
    times, values = samples.read(["in"], day=True)
    assert values["in"][0] == sum(range(FINE_IN_COARSE)) / FINE_IN_COARSE
    samples.add(0, {f"lag.{number}": 1.0 for number in range(MAX_SERIES + 50)})
    assert len(samples.fine.names()) == MAX_SERIES


def test_a_missing_sample_is_a_gap() -> None:
    samples = Samples()
    samples.add(1, {"in": 1.0})
    samples.add(2, {})
    samples.add(3, {"in": 3.0})
    assert samples.read(["in"], day=False)[1]["in"] == [1.0, None, 3.0]
    assert samples.last("in") == 3.0


def test_masks_go_through_lists() -> None:
    masks = Masks(["body.cards.number"])
    assert masks.body(b'{"cards": [{"number": 1}, {"number": 2, "x": 3}]}').decode().count(MASK) == 2
    assert masks.body(b"no json") == b"no json"
    with pytest.raises(ConfigError, match="--mask"):
        Masks(["card"])


def test_bodies() -> None:
    assert body_text("名".encode()) == ("名", True)
    assert body_text("名".encode()[:2], is_cut=True) == ("", True)
    assert body_text(b"\xff\xfe")[1] is False
    assert body_text(b"\x00text")[1] is False
    assert len(hex_lines(bytes(100_000))) == 256
    assert [node.name for node in json_tree(b'{"a": [1, {"b": null}]}')] == ["", "a", "0", "1", "b"]
    assert json_tree(b"[" * 100_000) == []
    assert len(json_tree(b"[" + b"1," * 9000 + b"1]")) <= 2000


def test_times() -> None:
    now = 1_764_000_000_000
    assert moment_ms("", LOOK, now, "begin") is None
    assert moment_ms("-10m", LOOK, now, "begin") == now - 600_000
    assert moment_ms("1764000000000", LOOK, now, "begin") == now
    assert moment_ms("2025-11-25T00:00", LOOK, now, "begin") == now
    assert moment_ms("2025-11-24T16:00:00Z", LOOK, now, "begin") == now
    for text in ("yesterday", "2025-99-99", "-10y", "0001-01-01T00:00:00+14:00"):
        try:
            assert moment_ms(text, LOOK, now, "begin") == 0
        except Problem as problem:
            assert problem.view.fields[0].field == "begin"


def test_unknown_sorts_last() -> None:
    rows = [3, None, 1]
    keys = {"n": lambda row: row}
    assert listed(rows, ListInput(sort="n"), keys, "n")[0] == [1, 3, None]
    assert listed(rows, ListInput(sort="-n"), keys, "n")[0] == [3, 1, None]
    assert listed(rows, ListInput(sort="hostile", page=99), keys, "n") == ([1, 3, None], 3, 1)


def test_empty_fields_count_as_not_given() -> None:
    kind = ENDPOINTS["messages"].takes
    read = read_input(kind, [("queue", ""), ("offset", "3"), ("stranger", "x")], {"topic": "orders"})
    assert (read.queue, read.offset) == (None, 3)  # type: ignore[attr-defined]


def test_csv_cells() -> None:
    assert csv_line(["=1", "+1", "-1", "@x", "\tx", 'a"b', "ok"]) == b"'=1,'+1,'-1,'@x,'\tx,\"a\"\"b\",ok\r\n"


def test_long_pauses_of_a_trace_are_short_in_the_picture() -> None:
    def event(began_ms: int) -> TraceEvent:
        return TraceEvent(
            what="handled", group="g", client="", began_ms=began_ms, took_ms=100, ok=True, outcome="success", attempt=1
        )

    picture = _picture([event(1000), event(2000), event(10_000_000)])
    assert picture is not None
    assert [pause.took_ms for pause in picture.pauses] == [900, 9_997_900]
    places = [bar.x for bar in picture.bars]
    assert places == sorted(places)
    assert all(bar.width > 20 for bar in picture.bars)
    assert picture.bars[-1].x + picture.bars[-1].width <= picture.width
