"""Records that lie one behind the other are read at once, and damage among them shows as on the other roads."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from unittest.mock import patch

import pytest

from rocketline import _impl
from rocketline.protocol.message_ids import encode_host
from rocketline.protocol.records import encode_record, topic_part
from rocketline.store.config import UNIT_BYTES
from rocketline.store.queue.consume_queue import UNIT
from rocketline.store.reading import verified_read as module

sound_run: Callable[..., Any] = _impl.TWINS.get("sound_run", (module.sound_run,))[0]
COUNT = 10
HOST = encode_host("127.0.0.1", 1)


class Run:
    """A log with records of two queues, of which one's units are there."""

    def __init__(self, base: int = 1000, scattered: bool = False, number: int = 40) -> None:
        self.base, self.number = base, number
        self.log, self.units = bytearray(), bytearray()
        magic, topic = topic_part("orders")
        for row in range(COUNT):
            for queue_id in (0, 1)[: 1 + scattered]:
                offset = base + len(self.log)
                self.log += encode_record(
                    magic, topic, queue_id, number + row, offset, b"%d" % row * 8, b"p" * 9, 0, 0, row, HOST, row, HOST, 0, 0
                )  # fmt: skip
                if queue_id == 0:
                    self.units += UNIT.pack(offset, base + len(self.log) - offset, row - 3)
        self.size = UNIT.unpack_from(self.units)[1]

    def read(self, max_messages: int = 32, max_bytes: int = 1 << 20, oldest: int = 0, check: bool = True) -> Any:
        found = sound_run(
            memoryview(bytes(self.units)), max_messages, max_bytes, memoryview(bytes(self.log)), self.base,
            self.base + len(self.log), 0, self.number, check, None, oldest,
        )  # fmt: skip
        return None if found is None else (*found[:3], b"".join(found[3]))

    def read_slowly(self, **limits: Any) -> Any:
        """One record after the other."""
        with (
            patch.object(module, "_neighbours", return_value=None),
            patch.object(module, "is_sound_table", return_value=False),
        ):
            return self.read(**limits)


@pytest.mark.parametrize("scattered", [False, True])
@pytest.mark.parametrize("base", [0, 1000, (1 << 32) - 900, 1 << 40])
def test_both_roads_give_the_same(scattered: bool, base: int) -> None:
    run = Run(base, scattered)
    found = run.read()
    assert found is not None
    assert found[:3] == (COUNT, COUNT, COUNT * run.size)
    for limits in (
        {}, {"max_messages": 9}, {"max_messages": 3}, {"max_bytes": run.size * 9}, {"max_bytes": 1},
        {"oldest": base}, {"oldest": base + 1},
    ):  # fmt: skip
        assert run.read(**limits) == run.read_slowly(**limits)


@pytest.mark.parametrize("scattered", [False, True])
def test_records_that_are_alike_are_not_looked_at_one_by_one(scattered: bool) -> None:
    run = Run(scattered=scattered)
    with patch.object(module, "are_sound_records", side_effect=AssertionError):
        assert run.read() is not None


@pytest.mark.parametrize("scattered", [False, True])
def test_a_wrong_byte_in_the_units(scattered: bool) -> None:
    whole = Run(scattered=scattered).read()
    for place in range(COUNT * UNIT_BYTES):
        for wrong in (1, 0x80):
            run = Run(scattered=scattered)
            run.units[place] ^= wrong
            assert run.read() == run.read_slowly(), place
            assert (run.read() == whole) == (place % UNIT_BYTES >= 12), "any code will do"


@pytest.mark.parametrize("scattered", [False, True])
def test_a_wrong_byte_in_the_log(scattered: bool) -> None:
    run = Run(scattered=scattered)
    for place in (*range(3 * run.size), *range(len(run.log) - run.size, len(run.log))):
        run.log[place] ^= 0x81
        assert run.read() == run.read_slowly(), place
        run.log[place] ^= 0x81


def test_units_and_records_that_agree_about_another_place() -> None:
    """What lies at a place and says that it is at another one is not what the unit of the other one points at."""
    run = Run()
    other = UNIT.unpack_from(run.units, 4 * UNIT_BYTES)[0] + 1
    run.units[4 * UNIT_BYTES : 4 * UNIT_BYTES + 8] = other.to_bytes(8, "big")
    run.log[4 * run.size + 28 : 4 * run.size + 36] = other.to_bytes(8, "big")
    assert run.read() is None


def test_unchecked_records_are_only_looked_for() -> None:
    run = Run()
    run.log[90] ^= 1
    assert run.read() is None
    assert run.read(check=False) == (COUNT, COUNT, len(run.log), bytes(run.log))
