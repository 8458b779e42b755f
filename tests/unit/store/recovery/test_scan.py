"""A scan finds the same records, and stops for the same reasons, as decoding one record after the other."""

from __future__ import annotations

import gc
from pathlib import Path
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.store.samples import BORN_V6, HOST, ROOT, item, message, tiny

from rocketline.clock import ManualClock
from rocketline.errors import CorruptRecord
from rocketline.message import KEYS, TAGS, UNIQ_KEY
from rocketline.protocol.properties import decode_properties
from rocketline.protocol.record_layout import BLANK_BYTES, MAGIC_BLANK
from rocketline.protocol.records import LogEntry, log_entry, read_start
from rocketline.store.files.segment import Segment
from rocketline.store.log.commit_log import CommitLog, StoreMessage
from rocketline.store.recovery.record_runs import has_lost_sector, index_properties
from rocketline.store.recovery.scan import END_OF_LOG, LogScan, Stop, gc_paused, sound_record
from rocketline.testing.disks import MemoryDisk

LOG = ROOT / "commitlog"
LONG_TOPIC = "t" * 200


def new_log(disk: MemoryDisk | None = None, segment_bytes: int = 4096, host: bytes = HOST) -> CommitLog:
    config = tiny(log_segment_bytes=segment_bytes)
    return CommitLog(disk or MemoryDisk(), LOG, config, host, ManualClock())


def all_shapes() -> list[StoreMessage]:
    """Both magics, both kinds of hosts, with and without body, tag, keys and properties."""
    six = message(b"from six", KEYS="k1 k2")
    six.born_host = BORN_V6
    return [
        message(b"", "plain"),
        message(b"x" * 700, TAGS="red", KEYS="a b", UNIQ_KEY="7F000001000018B4AAC2541A6F3C0000", other="value"),
        six,
        message(b"long", LONG_TOPIC, TAGS="blue"),
        message(b"wide" * 90, "ünïcode", TAGS="grün", KEYS="schlüssel"),
        message(b"many", other="z" * 900),
    ]


def filled(rounds: int = 6, segment_bytes: int = 4096) -> CommitLog:
    log = new_log(segment_bytes=segment_bytes)
    for number in range(rounds):
        for sample in all_shapes():
            sample.queue_id = number % 3
            assert log.append(sample).status.name == "OK"
    log.append_batch(message(b""), [item(b"one", KEYS="b1"), item(b"two")])
    return log


def careful(log: CommitLog, start: int = 0, check_crc: bool = True) -> tuple[list[LogEntry], Stop]:
    """The same walk, one decode at a time."""
    entries: list[LogEntry] = []
    offset = start
    while (segment := log.file.segment_at(offset)) is not None:
        position = offset - segment.base
        if segment.size - position < BLANK_BYTES:
            return entries, Stop(offset, f"no room for a record at {offset}", True)
        if read_start(segment.open(), position)[1] == MAGIC_BLANK:
            offset = segment.next_base
            continue
        try:
            record = sound_record(segment, position, segment.size, check_crc)
        except CorruptRecord as error:
            if any(segment.open()[position : position + BLANK_BYTES]):
                return entries, Stop(offset, f"no sound record at log offset {offset}: {error}", True)
            return entries, Stop(offset, END_OF_LOG, False)
        entries.append(log_entry(record))
        offset += record.size
    return entries, Stop(offset, END_OF_LOG, False)


def scanned(scan: LogScan) -> list[LogEntry]:
    return [entry for batch in scan for entry in batch]


def used_only(entry: LogEntry) -> LogEntry:
    return entry._replace(
        properties={name: value for name, value in entry.properties.items() if name in (UNIQ_KEY, KEYS, TAGS)}
    )


def flip(log: CommitLog, offset: int, mask: int = 0xFF) -> None:
    segment = log.file.segment_at(offset)
    assert segment is not None
    segment.open()[offset - segment.base] ^= mask


@pytest.mark.parametrize("segment_bytes", [4096, 1 << 16])
def test_every_record_is_found_with_what_the_indexes_need(segment_bytes: int) -> None:
    log = filled(segment_bytes=segment_bytes)
    scan = LogScan(log.file, 0)
    entries = scanned(scan)
    wanted, stop = careful(log)
    assert entries == [used_only(entry) for entry in wanted]
    assert len(entries) == scan.records == 38
    assert (scan.stop, scan.next_log_offset) == (stop, log.wrote)
    assert stop == Stop(log.wrote, END_OF_LOG, False)
    assert not scan.odd_blanks
    assert not scan.data_follows()


def test_all_properties_can_be_had() -> None:
    log = filled()
    assert scanned(LogScan(log.file, 0, parse_properties=decode_properties)) == careful(log)[0]


def test_it_goes_from_any_record_to_any_other() -> None:
    log = filled()
    entries = scanned(LogScan(log.file, 0))
    for first in (0, 7, 20, 37):
        scan = LogScan(log.file, entries[first].log_offset)
        assert scanned(scan) == entries[first:]
    scan = LogScan(log.file, 0, end=entries[20].log_offset)
    assert scanned(scan) == entries[:20]
    assert scan.stop == Stop(entries[20].log_offset, END_OF_LOG, False)


def test_a_record_larger_than_a_chunk_is_read() -> None:
    config = tiny(log_segment_bytes=8 << 20, max_message_bytes=4 << 20)
    log = CommitLog(MemoryDisk(), LOG, config, HOST, ManualClock())
    for size in (10, 3 << 20, 10, (1 << 20) - 100, 20):
        log.append(message(Random(size).randbytes(size)))
    assert [entry.size for entry in scanned(LogScan(log.file, 0))] == [entry.size for entry in careful(log)[0]]


def test_nothing_at_all_is_the_end_of_the_log() -> None:
    scan = LogScan([], 0)
    assert scanned(scan) == []
    assert scan.stop == Stop(0, END_OF_LOG, False)
    assert scan.skip() is None


@pytest.mark.parametrize(
    ("at", "reason"),
    [
        (4, "magic"),
        (1, "do not fit"),
        (28, "says that it belongs at"),
        (84, "do not fit"),
        (88, "does not match its CRC"),
        (8, "does not match its CRC"),
        (-1 - len("KEYS\x01k1 k2\x02") - 1, "properties length"),
    ],
)
def test_a_damaged_record_ends_the_walk_and_its_neighbours_are_found(at: int, reason: str) -> None:
    log = new_log()
    results = [log.append(message(bytes([number]) * 50, KEYS="k1 k2")) for number in range(5)]
    damaged = results[2]
    flip(log, damaged.log_offset + at if at >= 0 else damaged.next_log_offset + at, 0x40)
    scan = LogScan(log.file, 0)
    assert len(scanned(scan)) == 2
    assert scan.stop is not None
    assert scan.stop.log_offset == damaged.log_offset
    assert scan.stop.is_damage
    assert reason in scan.stop.reason
    gap = scan.skip()
    assert gap is not None
    assert (gap.log_offset, gap.next_log_offset) == (damaged.log_offset, damaged.next_log_offset)
    assert gap.reason == scan.stop.reason
    assert [entry.log_offset for entry in scanned(scan)] == [result.log_offset for result in results[3:]]
    assert scan.stop == Stop(log.wrote, END_OF_LOG, False)
    assert scan.skip() is None


def test_without_the_checksum_a_damaged_body_is_passed() -> None:
    log = new_log()
    flip(log, log.append(message(b"x" * 50)).log_offset + 90)
    assert len(scanned(LogScan(log.file, 0, check_crc=False))) == 1


def test_a_lost_sector_of_the_properties_is_seen() -> None:
    log = new_log()
    log.append(message(b"", other="p" * 1200))
    view = log.file.segment_at(0).open()  # type: ignore[union-attr]
    view[512:1024] = bytes(512)
    scan = LogScan(log.file, 0)
    assert scanned(scan) == []
    assert scan.stop is not None
    assert "never reached the disk" in scan.stop.reason


def test_zeros_in_the_middle_are_told_from_the_end() -> None:
    log = filled()
    entries = scanned(LogScan(log.file, 0))
    hole = entries[10]
    segment = log.file.segment_at(hole.log_offset)
    assert segment is not None
    position = hole.log_offset - segment.base
    segment.open()[position : position + hole.size] = bytes(hole.size)
    scan = LogScan(log.file, 0)
    assert scanned(scan) == entries[:10]
    assert scan.stop == Stop(hole.log_offset, END_OF_LOG, False)
    gap = scan.skip()
    assert gap is not None
    assert "records follow" in gap.reason
    assert scanned(scan) == entries[11:]


def test_a_record_inside_a_body_is_not_taken_for_one() -> None:
    log = new_log()
    inner = log.append(message(b"inner"))
    raw = bytes(log.file.slice(0, inner.size) or b"")
    outer = log.append(message(raw * 3))
    last = log.append(message(b"last"))
    flip(log, outer.log_offset + 5)
    scan = LogScan(log.file, 0)
    assert len(scanned(scan)) == 1
    gap = scan.skip()
    assert gap is not None
    assert gap.next_log_offset == last.log_offset


def test_a_missing_file_is_named_and_the_rest_is_read() -> None:
    log = filled()
    segments = list(log.file)
    entries = scanned(LogScan(segments, 0))
    scan = LogScan([segments[0], *segments[2:]], 0)
    assert scanned(scan) == [entry for entry in entries if entry.log_offset < segments[1].base]
    assert scan.stop is not None
    assert f"no file holds log offset {segments[1].base}, the next one is {segments[2].path.name}" in scan.stop.reason
    assert scan.skip() is not None
    assert scanned(scan) == [entry for entry in entries if entry.log_offset >= segments[2].base]


def test_a_blank_with_a_wrong_size_is_followed_and_told() -> None:
    log = filled()
    end = next(iter(log.file)).next_base
    blank = max(entry.log_offset + entry.size for entry in careful(log)[0] if entry.log_offset < end)
    flip(log, blank + 3)
    scan = LogScan(log.file, 0)
    assert len(scanned(scan)) == 38
    assert scan.odd_blanks == [blank]


@pytest.mark.parametrize("behind", [8, 9, 100, -1])
def test_garbage_behind_the_end_is_told(behind: int) -> None:
    log = filled(segment_bytes=1 << 16)
    flip(log, log.wrote + behind if behind > 0 else (1 << 16) + behind)
    scan = LogScan(log.file, 0)
    scanned(scan)
    assert scan.stop == Stop(log.wrote, END_OF_LOG, False)
    assert scan.data_follows()
    assert scan.skip() is None
    assert scan.data_follows()


@pytest.mark.parametrize("place", [0, 4, 5, 4096, 4096 + 3, 4096 + 4, 8191])
def test_a_byte_that_no_record_can_begin_with_is_told_too(place: int) -> None:
    """After two empty files were searched for records, all of it but a few bytes is known to be zeros."""
    disk = MemoryDisk()
    disk.make_folder(LOG)
    segments = [Segment(disk, LOG / f"{base:020d}", base, 4096) for base in (0, 4096)]
    scan = LogScan(segments, 0)
    assert not scanned(scan)
    assert scan.skip() is None
    assert not scan.data_follows()
    segments[place // 4096].open()[place % 4096] = 1
    scan = LogScan(segments, 0)
    assert not scanned(scan)
    assert scan.skip() is None
    assert scan.data_follows()


def test_the_collector_rests_during_a_walk_and_is_as_it_was_afterwards() -> None:
    assert gc.isenabled()
    with pytest.raises(KeyError), gc_paused():
        assert not gc.isenabled()
        raise KeyError
    assert gc.isenabled()
    gc.disable()
    try:
        with gc_paused():
            pass
        assert not gc.isenabled()
    finally:
        gc.enable()


@settings(max_examples=150)
@given(st.integers(0, 10**9), st.integers(1, 12), st.booleans())
def test_whatever_is_damaged_it_agrees_with_the_careful_walk(seed: int, flips: int, check_crc: bool) -> None:
    log = _COPIES.fresh()
    random = Random(seed)
    for _ in range(flips):
        flip(log, random.randrange(log.wrote), 1 << random.randrange(8))
    scan = LogScan(log.file, 0, check_crc=check_crc)
    entries = scanned(scan)
    wanted, stop = careful(log, 0, check_crc)
    assert entries == [used_only(entry) for entry in wanted]
    assert scan.stop == stop
    while scan.skip() is not None:
        more, stop = careful(log, scan.next_log_offset, check_crc)
        assert scanned(scan) == [used_only(entry) for entry in more] != []
        assert scan.stop == stop


class _Copies:
    """One filled log, whose bytes are put back before each use."""

    def __init__(self) -> None:
        self._log = filled(2)
        self._saved = [bytes(segment.open()) for segment in self._log.file]

    def fresh(self) -> CommitLog:
        for segment, saved in zip(self._log.file, self._saved):
            segment.open()[:] = saved
        return self._log


_COPIES = _Copies()


@given(st.lists(st.sampled_from([UNIQ_KEY, KEYS, TAGS, "MY_KEYS", "TAGSx", "\x01", "\x02", "\x01\x02", "v", " ", "ü"])))
def test_used_properties_are_read_as_all_of_them_are(pieces: list[str]) -> None:
    text = "".join(pieces)
    everything = decode_properties(text)
    assert index_properties(text) == {name: everything[name] for name in (UNIQ_KEY, KEYS, TAGS) if name in everything}


def test_a_file_cut_short_ends_early(tmp_path: Path) -> None:
    log = filled()
    whole = next(iter(log.file))
    cut = Segment(MemoryDisk(), whole.path, 0, 1500)
    cut.view = whole.open()[:1500]
    scan = LogScan([cut], 0)
    entries = scanned(scan)
    assert entries == [used_only(entry) for entry in careful(log)[0] if entry.log_offset + entry.size <= 1500]
    assert scan.stop is not None
    assert scan.stop.is_damage


ID = "7F000001000018B4AAC2541A6F3C%04X"


def with_raw(raw: str, topic: str = "orders") -> StoreMessage:
    made = message(b"body", topic)
    made.properties_raw = raw.encode()
    return made


@pytest.mark.parametrize(
    "form",
    [
        "UNIQ_KEY\x01{id}\x02WAIT\x01true\x02",
        "UNIQ_KEY\x01{id}\x02TAGS\x01red\x02",
        "TAGS\x01red\x02UNIQ_KEY\x01{id}\x02WAIT\x01true\x02",
        "KEYS\x01a b\x02UNIQ_KEY\x01{id}\x02TAGS\x01red\x02",
        "UNIQ_KEY\x01{id}",
        "UNIQ_KEY\x01{id}\x02",
        "WAIT\x01true\x02UNIQ_KEY\x01{id}0\x02",
        "UNIQ_KEY\x01{id}\x02UNIQ_KEY\x01second\x02",
        "UNIQ_KEY\x01short\x02TAGS\x01{id}\x02",
        "other\x01xUNIQ_KEY\x01{id}\x02TAGS\x01red\x02",
        "TAGS\x01UNIQ_KEY\x01{id}\x02WAIT\x01true\x02",
        "UNIQ_KEY\x01\x02{id}x\x02TAGS\x01red\x02",
        "WAIT\x01true\x02",
        "",
    ],
)
@pytest.mark.parametrize("topic", ["orders", "UNIQ_KEY", "ünïcode"])
def test_endings_that_come_again_are_read_as_if_each_were_the_first(form: str, topic: str) -> None:
    log = new_log(segment_bytes=1 << 16)
    odd = ["x", "7F000001 00018B4AAC2541A6F3C0007", "ü" * 16, "\x02" * 32, "TAGS\x01blue\x02" * 3, ID % 9 + "\x01"]
    for made in [*[ID % number for number in range(4)], *odd, ID % 10]:
        log.append(with_raw(form.replace("{id}", made), topic))
    assert scanned(LogScan(log.file, 0)) == [used_only(entry) for entry in careful(log)[0]]


def test_more_endings_than_are_remembered() -> None:
    log = new_log(segment_bytes=4 << 20)
    for number in range(4200):
        log.append(with_raw(f"UNIQ_KEY\x01{ID % number}\x02TAGS\x01{number % 4150}\x02"))
    assert scanned(LogScan(log.file, 0)) == [used_only(entry) for entry in careful(log)[0]]


@pytest.mark.parametrize("damaged", range(1, 20, 3))
def test_a_familiar_record_that_lost_a_sector_is_seen(damaged: int) -> None:
    log = new_log(segment_bytes=1 << 16)
    for number in range(20):
        log.append(with_raw(f"UNIQ_KEY\x01{ID % number}\x02other\x01{'z' * 400}\x02"))
    entry = scanned(LogScan(log.file, 0))[damaged]
    segment, end = log.file.segment_at(0), entry.log_offset + entry.size
    assert segment is not None
    first = end - end % 512
    segment.open()[first:end] = bytes(end - first)
    scan = LogScan(log.file, 0)
    assert (len(scanned(scan)), scan.stop) == (damaged, careful(log)[1])
    assert scan.stop is not None
    assert scan.stop.is_damage


def test_a_familiar_ending_in_a_record_of_another_size_is_not_believed() -> None:
    log = new_log(segment_bytes=1 << 16)
    for number in range(3):
        log.append(with_raw(f"UNIQ_KEY\x01{ID % number}\x02WAIT\x01true\x02"))
    segment, entries = log.file.segment_at(0), scanned(LogScan(log.file, 0))
    assert segment is not None
    segment.open()[entries[1].log_offset + 87] += 1
    scan = LogScan(log.file, 0, check_crc=False)
    assert (len(scanned(scan)), scan.stop) == (1, careful(log, check_crc=False)[1])


@pytest.mark.parametrize(("properties_bytes", "is_lost"), [(0, False), (2, True)])
def test_zeros_at_the_end_are_the_length_of_no_properties_or_a_lost_sector(
    properties_bytes: int, is_lost: bool
) -> None:
    assert has_lost_sector(b"x" * 512 + bytes(2), 0, 500, 514, properties_bytes) is is_lost
