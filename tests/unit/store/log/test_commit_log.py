import errno
from pathlib import Path

import pytest
from tests.unit.store.samples import BORN_V6, HOST, item, message, opened, tiny

from rocketline.clock import ManualClock
from rocketline.errors import DiskFull, StoreError
from rocketline.message import LogOffset
from rocketline.protocol.message_ids import encode_host
from rocketline.protocol.record_layout import (
    BORN_IPV6,
    MAGIC_BLANK,
    MAGIC_V2,
    STORE_IPV6,
    TRANSACTION_COMMIT,
    TRANSACTION_PREPARED,
    TRANSACTION_ROLLBACK,
)
from rocketline.protocol.records import BatchItem, decode_record, log_entry, read_start
from rocketline.store.config import StoreConfig
from rocketline.store.files.disk import RealDisk
from rocketline.store.log.commit_log import AppendStatus, CommitLog, is_storable_topic
from rocketline.testing.disks import FaultyDisk, MemoryDisk

LOG = Path("/data/commitlog")


def new_log(
    disk: MemoryDisk | FaultyDisk | None = None, config: StoreConfig | None = None, clock: ManualClock | None = None
) -> CommitLog:
    return CommitLog(disk or MemoryDisk(), LOG, config or tiny(), HOST, clock or ManualClock())


def record(log: CommitLog, log_offset: int) -> bytes:
    found = log.record_at(log_offset)
    assert found is not None
    return bytes(found)


def test_a_record_has_apaches_bytes() -> None:
    log = CommitLog(MemoryDisk(), LOG, tiny(), encode_host("10.1.2.3", 10911), ManualClock(2000))
    sample = message(b"hi", "T", 3, TAGS="A")
    sample.properties_raw = b"TAGS\x01A\x02"
    sample.flag, sample.born_ms, sample.born_host = 7, 1000, encode_host("127.0.0.1", 1)
    log.wrote = 22
    log.queue_offsets["T", 3] = 11
    result = log.append(sample)
    assert (result.log_offset, result.queue_offset, result.size) == (22, 11, 101)
    assert record(log, 22).hex() == (
        "00000065daa320a758932aac0000000300000007000000000000000b000000000000001600000000"
        "00000000000003e87f0000010000000100000000000007d00a01020300002a9f0000000000000000000000000000000268690154000754414753014102"
    )


def test_queue_offsets_count_per_topic_and_queue() -> None:
    log = new_log()
    places = [("a", 0), ("a", 1), ("a", 0), ("b", 0), ("a", 0)]
    offsets = [log.append(message(topic=topic, queue_id=queue_id)).queue_offset for topic, queue_id in places]
    assert offsets == [0, 0, 1, 0, 2]


@pytest.mark.parametrize(
    ("kind", "numbered"), [(TRANSACTION_PREPARED, False), (TRANSACTION_ROLLBACK, False), (TRANSACTION_COMMIT, True)]
)
def test_prepared_and_rolled_back_messages_get_no_number(kind: int, numbered: bool) -> None:
    log = new_log()
    log.append(message())
    sample = message()
    sample.sys_flag = kind
    assert log.append(sample).queue_offset == (1 if numbered else 0)
    assert log.append(message()).queue_offset == (2 if numbered else 1)


def test_the_entry_for_the_dispatcher_equals_the_one_read_back() -> None:
    log = new_log()
    log.append(message(b"x", TAGS="red", KEYS="k1 k2"))
    log.append_batch(message(queue_id=3), [item(b"1", TAGS="blue"), item(b"2", UNIQ_KEY="u")])
    (appended,) = log.appended
    assert len(appended.entries or ()) == 3
    for entry in appended.entries or ():
        stored = record(log, entry.log_offset)
        assert entry == log_entry(decode_record(stored, 0, len(stored), check_crc=True))


def test_a_record_that_does_not_fit_leaves_a_blank_and_moves_on() -> None:
    log = new_log()
    first = log.append(message(bytes(1900)))
    second = log.append(message(bytes(1900)))
    third = log.append(message(bytes(100)))
    assert second.log_offset == first.next_log_offset
    assert third.log_offset == 4096
    rest = log.file.slice(second.next_log_offset, 4096)
    assert rest is not None
    assert read_start(rest, 0) == (4096 - second.next_log_offset, MAGIC_BLANK)


def test_a_record_fits_exactly_when_room_for_a_blank_remains() -> None:
    log = new_log(config=tiny(max_message_bytes=5000))
    head = log.append(message(b"")).size
    exact = log.append(message(bytes(4096 - 8 - 2 * head)))
    assert exact.next_log_offset == 4096 - 8
    assert log.append(message(b"")).log_offset == 4096
    other = new_log(config=tiny(max_message_bytes=5000))
    other.append(message(b""))
    assert other.append(message(bytes(4096 - 8 - 2 * head + 1))).log_offset == 4096


def test_a_batch_moves_as_a_whole() -> None:
    log = new_log()
    log.append(message(bytes(1900)))
    log.append(message(bytes(1400)))
    result = log.append_batch(message(), [item(bytes(200), UNIQ_KEY=str(number)) for number in range(4)])
    assert result.log_offset == 4096
    assert result.queue_offset == 2
    assert len(result.log_offsets) == 4
    assert result.log_offsets[0] == 4096
    assert [decode_record(record(log, at), 0, 4096).queue_offset for at in result.log_offsets] == [2, 3, 4, 5]
    assert log.append(message()).queue_offset == 6


def test_messages_of_a_batch_keep_their_own_flag_and_properties() -> None:
    log = new_log()
    first, second = (item(b"one", TAGS="a")._replace(flag=7), item(b"two"))
    result = log.append_batch(message(b"ignored", TAGS="batch"), [first, second])
    one, two = (decode_record(record(log, at), 0, 4096, check_crc=True) for at in result.log_offsets)
    assert (bytes(one.body), one.flag, one.properties) == (b"one", 7, b"TAGS\x01a\x02")
    assert (bytes(two.body), two.flag, two.properties) == (b"two", 0, b"")


def test_addresses_decide_their_flags() -> None:
    log = CommitLog(MemoryDisk(), LOG, tiny(), encode_host("::2", 10911), ManualClock())
    sample = message()
    sample.born_host = BORN_V6
    stored = decode_record(record(log, log.append(sample).log_offset), 0, 4096)
    assert stored.sys_flag == BORN_IPV6 | STORE_IPV6
    assert (stored.born_host, stored.store_host) == (BORN_V6, encode_host("::2", 10911))
    plain = message()
    plain.sys_flag = BORN_IPV6
    stored = decode_record(record(log, log.append(plain).log_offset), 0, 4096)
    assert stored.sys_flag == STORE_IPV6, "a flag that does not agree with the address would shift every field"


def test_a_long_topic_is_stored_as_v2() -> None:
    log = new_log()
    stored = record(log, log.append(message(topic="%RETRY%" + "g" * 140)).log_offset)
    assert read_start(stored, 0)[1] == MAGIC_V2


def test_store_time_never_goes_back() -> None:
    clock = ManualClock(5000)
    log = new_log(clock=clock)
    first = log.append(message())
    clock.jump_wall(-3)
    second = log.append(message())
    batch = log.append_batch(message(), [item(b"x")])
    clock.jump_wall(10)
    third = log.append(message())
    assert [first.store_ms, second.store_ms, batch.store_ms, third.store_ms] == [5000, 5000, 5000, 12000]
    assert log.store_ms_at(third.log_offset) == 12000


def test_the_store_time_of_a_record_from_ipv6_is_found() -> None:
    log = new_log(clock=ManualClock(777))
    sample = message()
    sample.born_host = BORN_V6
    assert log.store_ms_at(log.append(sample).log_offset) == 777
    assert log.store_ms_at(10**9) == -1


@pytest.mark.parametrize(
    ("sample", "status", "why"),
    [
        (message(bytes(2049)), AppendStatus.MESSAGE_ILLEGAL, "2049 bytes, the limit is 2048"),
        (message(x="y" * 32767), AppendStatus.PROPERTIES_TOO_LARGE, "the limit is 32767"),
        (message(x="y" * 4000), AppendStatus.MESSAGE_ILLEGAL, "more than the limit of 4088"),
        (message(queue_id=-1), AppendStatus.MESSAGE_ILLEGAL, "queue -1 of topic 'orders'"),
        (message(topic=""), AppendStatus.MESSAGE_ILLEGAL, "topic ''"),
        (message(topic="../../x"), AppendStatus.MESSAGE_ILLEGAL, "topic '../../x'"),
        (message(topic=".."), AppendStatus.MESSAGE_ILLEGAL, "topic '..'"),
        (message(topic="t" * 256), AppendStatus.MESSAGE_ILLEGAL, "1 to 255 bytes"),
    ],
)
def test_what_cannot_be_stored_is_refused_with_a_reason(sample, status: AppendStatus, why: str) -> None:  # type: ignore[no-untyped-def]
    log = new_log()
    result = log.append(sample)
    assert result.status is status
    assert why in result.reason
    assert (log.wrote, len(log.appended), log.queue_offsets) == (0, 0, {})


@pytest.mark.parametrize(
    ("items", "why"),
    [
        ([], "empty"),
        ([item(bytes(1500)), item(bytes(600))], "2100 bytes, the limit is 2048"),
        ([item(b"", x="y" * 1000) for _ in range(4)], "more than the limit"),
        ([item(b"", x="y" * 33000)], "limit is 32767"),
    ],
)
def test_a_batch_is_stored_whole_or_not_at_all(items, why: str) -> None:  # type: ignore[no-untyped-def]
    log = new_log()
    result = log.append_batch(message(), items)
    assert result.status is not AppendStatus.OK
    assert why in result.reason
    assert log.wrote == 0
    for bad in (message(topic="a/b"), message(queue_id=-1)):
        assert log.append_batch(bad, [item(b"")]).status is AppendStatus.MESSAGE_ILLEGAL


def test_only_records_are_found_by_offset() -> None:
    log = new_log()
    inner = record(log, log.append(message(b"inner")).log_offset)
    outer = log.append(message(inner))
    inside = LogOffset(outer.log_offset + 88)
    assert log.record_at(outer.log_offset) is not None
    assert read_start(log.file.slice(inside, inside + 8) or b"", 0)[0] == len(inner), "the body looks like a record"
    for offset in (inside, 1, -1, outer.next_log_offset, 4000, 10**12):
        assert log.record_at(offset) is None


def test_a_full_disk_refuses_and_changes_nothing() -> None:
    memory = MemoryDisk()
    faulty = FaultyDisk(memory)
    log = new_log(faulty)
    first = log.append(message(bytes(1900)))
    log.append(message(bytes(1900)))
    end = log.wrote
    for operation in ("open", "reserve"):
        faulty.fail(operation, errno.ENOSPC, part="4096")
        with pytest.raises(DiskFull):
            log.append(message(bytes(500)))
        assert log.wrote == end
        assert log.queue_offsets["orders", 0] == 2
    result = log.append(message(bytes(500)))
    assert (result.log_offset, result.queue_offset) == (4096, 2)
    assert record(log, first.log_offset)[88:].startswith(bytes(1900))


def test_a_missing_file_in_between_refuses_to_load() -> None:
    disk = MemoryDisk()
    log = new_log(disk)
    for _ in range(6):
        log.append(message(bytes(1900)))
    log.close()
    disk.remove(LOG / f"{4096:020d}")
    with pytest.raises(StoreError, match="has 00000000000000008192 but not 00000000000000004096"):
        new_log(disk).load()


def mapped_bytes(path: Path) -> int:
    """How much of a file is in the memory of this process."""
    found, here = 0, False
    for line in Path("/proc/self/smaps").read_text().splitlines():
        if line.startswith("Rss:") and here:
            found += int(line.split()[1]) * 1024
        elif not line.partition(" ")[0].endswith(":"):
            here = line.endswith(str(path))
    return found


def test_large_files_are_reserved_and_warmed_in_steps(tmp_path: Path) -> None:
    config = StoreConfig(log_segment_bytes=32 << 20)
    log = CommitLog(RealDisk(), tmp_path, config, HOST, ManualClock())
    log.append(message(b"first"))
    path = tmp_path / f"{0:020d}"
    assert path.stat().st_size == 32 << 20
    assert path.stat().st_blocks * 512 <= 5 << 20, "only the next step has blocks"
    for _ in range(7):
        log.append(message(bytes(4 << 20)))
    assert log.append(message(bytes(4 << 20))).log_offset == 32 << 20, "rolled into the file made ahead"
    in_memory = mapped_bytes(path)
    log.forget_cold()
    assert mapped_bytes(path) <= in_memory - (16 << 20), "what is far behind the end is given back"
    assert decode_record(record(log, 0), 0, 4096, check_crc=True).body == b"first"
    log.close()


@pytest.mark.parametrize("topic", ["a", "%RETRY%g", "ü", "a|b"])
def test_names_of_topics_become_folders(topic: str) -> None:
    assert is_storable_topic(topic)


@pytest.mark.parametrize("topic", ["", ".", "..", "a/b", "/etc", "a\0b", "\ud800", "t" * 256])
def test_names_that_leave_the_folder_do_not(topic: str) -> None:
    assert not is_storable_topic(topic)


@pytest.mark.parametrize("value", ["ends in a zero\0", "holds" + "\0" * 512 + "many"])
def test_properties_that_look_like_a_lost_sector_are_refused(value: str) -> None:
    """After a crash the log would be cut at such a record."""
    store = opened()
    single = message()
    single.properties_raw = f"a\x01{value}".encode()
    result = store.append(single)
    assert (result.status, "zero byte" in result.reason) == (AppendStatus.MESSAGE_ILLEGAL, True)
    batch = store.append_batch(message(), [BatchItem(0, b"x", b""), BatchItem(0, b"y", single.properties_raw)])
    assert batch.status is AppendStatus.MESSAGE_ILLEGAL
    single.properties_raw = f"a\x01{value}\x02".encode() if value.endswith("\0") else b"a\x01b\0c\x02"
    assert store.append(single).status is AppendStatus.OK
    store.close()
