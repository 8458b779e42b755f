"""Random bytes for the compiled code, a million inputs in minutes: `python -m tests.support.compiled_fuzz --inputs 1000000`.

Good frames, records and batches are cut, spliced and sprinkled with wrong bytes; both implementations must make the same of
each. `make sanitize` runs it with code built with AddressSanitizer and UndefinedBehaviorSanitizer.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import fields
from random import Random
from typing import Any
from unittest.mock import patch

import numpy as np

from rocketline import _impl
from rocketline.broker.fastpath.answers import SendAnswerParts
from rocketline.broker.fastpath.grants import Grant, Place, hmac_key
from rocketline.errors import RocketlineError
from rocketline.protocol import connection, records
from rocketline.protocol.command import JSON, ROCKETMQ, Command
from rocketline.protocol.connection import MAX_FRAME_BYTES, MAX_HEADER_BYTES, Connection, frame_bytes
from rocketline.protocol.message_ids import encode_host
from rocketline.protocol.record_layout import BORN_IPV6
from rocketline.protocol.records import BatchItem, RecordHead, decode_batch, encode_batch, encode_record, topic_part
from rocketline.protocol.signing import SIGNED_CODE, SIGNED_MS, Credentials
from rocketline.protocol.subscription import TagTest
from rocketline.spark import property_columns, record_table
from rocketline.spark.columns import wrong_bodies
from rocketline.spark.property_columns import read_properties
from rocketline.spark.record_table import read_table
from rocketline.spark.sink.encoding import Maps, RowColumns, Texts
from rocketline.store.config import UNIT_BYTES
from rocketline.store.index.index_file import IndexState, index_range
from rocketline.store.log.appended_range import range_entries
from rocketline.store.log.commit_log import Room
from rocketline.store.queue.consume_queue import UNIT, QueueRun
from rocketline.store.queue.dispatcher import Dispatched, range_runs
from rocketline.store.reading.verified_read import verified_run
from rocketline.store.recovery import record_runs
from rocketline.store.recovery.record_runs import FastLogReader, Row

_HOST, _HOST_V6 = encode_host("127.0.0.1", 10911), encode_host("::1", 5555)
_ACCOUNT = Credentials("fuzz", "secret of fuzz")
_SIGNED_AT = 1_794_740_000_000, 1_794_740_600_000
_WORDS = (
    b"\x01",
    b"\x02",
    b'"',
    b"\\",
    b"\\u0001",
    b"{",
    b"}",
    b"\xff",
    b"\0\0\0\0",
    b"\x7f\xff\xff\xff",
    b"\xda\xa3\x20\xa7",
)
_PULL = {"consumerGroup": "g", "topic": "t", "queueId": "0", "queueOffset": "123", "sysFlag": "6", "commitOffset": "7"}
_SEND = {"a": "g", "b": "topic", "c": "TBW102", "d": "4", "e": "0", "f": "0", "g": "1794740515350", "h": "0"}
_SEND |= {"i": "UNIQ_KEY\x017F0000012A1E14C214797DF6A2140000\x02TAGS\x01ü\x02", "k": "false", "n": "broker-a"}


def _frames() -> list[bytes]:
    fields: tuple[dict[str, str], ...] = (_SEND, {}, {"queueOffset": "7", "topic": "ü\n"})
    pulls = [frame_bytes(Command(11, dict(_PULL), opaque=7, encoding=encoding)) for encoding in (JSON, ROCKETMQ)]
    return pulls + [
        frame_bytes(Command(code, dict(ext), b"body", 7, remark=remark, encoding=encoding))
        for encoding in (JSON, ROCKETMQ)
        for ext in fields
        for code, remark in ((310, None), (11, "no"))
    ]


def _record(position: int, body: bytes, properties: bytes, topic: str = "topic", wide: bool = False) -> bytes:
    magic, part = topic_part(topic)
    born = _HOST_V6 if wide else _HOST
    flag = BORN_IPV6 if wide else 0
    return encode_record(
        RecordHead(magic, part, 0, position, position, 0, flag, 1, born, 2, _HOST, 0, 0), body, properties
    )


def _log(random: Random) -> bytes:
    log = b""
    for _ in range(random.randrange(1, 4)):
        properties = random.choice(
            (b"", b"TAGS\x01a\x02", b"UNIQ_KEY\x01" + b"A" * 32 + b"\x02x\x01" + b"y" * random.randrange(900))
        )
        log += _record(len(log), random.randbytes(random.randrange(100)), properties, "t" * random.choice((1, 7, 200)),
                       random.random() < 0.3)  # fmt: skip
    return log


def spoil(random: Random, data: bytes) -> bytes:
    """The same with a few mistakes."""
    changed = bytearray(data)
    for _ in range(random.randrange(4)):
        at = random.randrange(len(changed) + 1)
        kind = random.randrange(5)
        if kind == 0:
            changed[at : at + 1] = bytes((random.randrange(256),))
        elif kind == 1:
            changed[at:at] = random.choice(_WORDS)
        elif kind == 2:
            word = random.choice(_WORDS)
            changed[at : at + len(word)] = word
        elif kind == 3:
            del changed[at : at + random.randrange(1, 9)]
        else:
            del changed[at:]
    return bytes(changed)


def _received(data: bytes) -> tuple[list[Command], str]:
    commands: list[Command] = []
    try:
        commands.extend(Connection(4096, 2048).receive(data))
    except RocketlineError as error:
        return commands, str(error)
    return commands, ""


def _split(data: bytes) -> list[BatchItem] | str:
    try:
        return decode_batch(data)
    except RocketlineError as error:
        return str(error)


def _rows(data: bytes) -> tuple[int, list[Row]]:
    rows: list[Row] = []
    return FastLogReader(True, None).read(data, 0, 0, rows), rows


def _both(make: Callable[[bytes], Any], data: bytes, module: Any, name: str) -> None:
    quickly = make(data)
    with patch.object(module, name, _impl.PAIRS[name][0]):
        carefully = make(data)
    assert quickly == carefully, (name, data, quickly, carefully)


def _sound(data: bytes) -> None:
    python, compiled = _impl.PAIRS["is_sound_record"]
    size = min(len(data), int.from_bytes(data[:4], "big"))
    if size >= 100:
        assert python(data, 0, size, 0) == compiled(data, 0, size, 0), data


def _pulls(data: bytes) -> None:
    """What is cut out of a request is what it says; with other numbers there it is the same request."""
    take = _impl.compiled_only("take_pulls")
    _, key = take(data, MAX_FRAME_BYTES, MAX_HEADER_BYTES, {})
    if key is None:
        return
    ((_, opaque, queue_offset, commit_offset, end),) = take(data, MAX_FRAME_BYTES, MAX_HEADER_BYTES, {key: 1})[0][:1]
    try:
        (request,) = Connection().receive(data[:end])
    except RocketlineError:
        return
    ext = request.ext or {}
    assert (request.opaque, ext["queueOffset"], ext["commitOffset"]) == (
        opaque,
        str(queue_offset),
        str(commit_offset),
    ), data


def _table(data: bytes) -> list[bytes]:
    table = read_table(data, 0)
    return [getattr(table, field.name).tobytes() for field in fields(table)[1:]]


def _properties(data: bytes) -> list[Any]:
    """Of texts that begin and end anywhere."""
    places = np.sort(np.array(Random(len(data)).choices(range(len(data) + 1), k=8), np.int64))
    found = read_properties(data, places[0::2].copy(), places[1::2].copy(), ("TAGS", "x"), True)
    assert found.maps is not None
    found.maps.validate(full=True)
    return [found.maps.to_pylist(), *[column.to_pylist() for column in found.named.values()]]


def _texts(random: Random, data: bytes, rows: int) -> Texts:
    """A column of texts that begin and end anywhere; some columns point where nothing is."""
    data = random.choice((data, b"words of \xc3\xbc properties" * 2))
    places = np.sort(np.array(random.choices(range(len(data) + 1), k=rows + 1), np.int32))
    if random.random() < 0.05:
        places[random.randrange(rows + 1)] = random.choice((-1, 1 << 30, len(data) + 1))
    return Texts(random.choice((None, bytes(random.choices((0, 1, 1), k=rows)))), places, data)


def _outgoing(random: Random, data: bytes) -> None:
    """Rows of the sink: compiled code writes what Python writes, as far as it goes, and refuses what are no columns."""
    rows, pairs = random.randrange(6), random.randrange(9)
    body, tags, keys, sharding_key = (_texts(random, data, rows) for _ in range(4))
    lists = Texts(None, np.sort(np.array(random.choices(range(pairs + 1), k=rows + 1), np.int32)), b"")
    maps = Maps(lists, _texts(random, data, pairs), _texts(random, data, pairs))
    columns = RowColumns(body, tags, None if rows % 2 else keys, sharding_key, None if rows % 3 else maps)
    chosen = np.array(random.choices(range(rows + (random.random() < 0.05)), k=rows) if rows else [], np.int32)
    order = random.randrange(3), random.choice((1, 9)), random.choice((99, 9999)), "A" * 22, random.choice((0, 1 << 38))
    python, compiled = _impl.PAIRS["encode_rows"]
    try:
        made = compiled(columns, chosen, *order)
        assert made == python(columns, chosen, order[0], made[1], *order[2:]), (columns, chosen, order)
        python, compiled = _impl.PAIRS["text_hashes"]
        assert python(sharding_key) == compiled(sharding_key), sharding_key
    except ValueError as error:
        assert "no columns" in str(error), (columns, chosen, order)


def _bodies(data: bytes) -> None:
    table = read_table(data, 0)
    args = data, table.body_at, table.body_end, table.head["body_crc"].astype(np.int32)
    assert _impl.PAIRS["wrong_bodies"][0](*args) == wrong_bodies(*args), data


def _sends() -> list[bytes]:
    batch = encode_batch([BatchItem(7, b"one", b"KEYS\x01k1 k2\x02TAGS\x01\xfc\x02"), BatchItem(0, b"", b"")])
    return [
        frame_bytes(Command(code, _SEND | more, body, 7, encoding=encoding))
        for encoding in (JSON, ROCKETMQ)
        for code, more, body in ((310, {}, b"body"), (320, {"m": "true"}, batch), (310, {"m": "true", "i": ""}, batch))
    ]


def _signed_sends() -> list[bytes]:
    """Some of them say when and as what they were signed."""
    made = []
    for number, frame in enumerate(_sends()):
        (command,) = Connection().receive(frame)
        if number % 2:
            command.ext = (command.ext or {}) | {SIGNED_CODE: str(command.code), SIGNED_MS: str(_SIGNED_AT[0])}
        _ACCOUNT.sign(command)
        made.append(frame_bytes(command))
    return made


def _is_signed(command: Command) -> bool:
    """Whether a send is signed by the account with the grant, or what it says is not for the fast path to judge."""
    given = dict(command.ext or ())
    _ACCOUNT.sign(command)
    return given == command.ext


def _fast_sends(data: bytes, grant: Grant | None = None) -> None:
    """What the fast path serves, Python can read: the frames, and the records it writes, which are dispatched as read."""
    log = memoryview(bytearray(8192))
    places: dict[str, Place] = {"topic": ("topic", b"\x05topic", (("topic", 0), ("topic", 1)))}
    answer = SendAnswerParts(b'{"x":"', b"}", b"a", b"b", b"c", b"AB")
    context = 4096, 2048, None if grant else places, False, b"CLUSTER\x01c\x02", _HOST, 4096, 4096, *answer
    room = Room(log, 0, 0, len(log), 9, {})
    if grant is not None:
        grant = grant._replace(sends=places, batches=places)
    read = (data, _HOST, None) if grant is None else (data, _HOST, None, grant)
    sent = _impl.compiled_only("serve_sends")([read], context, room, _SIGNED_AT)
    if sent is None:
        return
    _, rests, wrote, sends, batches, runs = sent
    taken, _ = _received(data[: rests[0][1]] if rests else data)
    assert grant is None or all(map(_is_signed, taken)), data
    assert [command.code for command in taken].count(320) == batches, data
    assert len(taken) == sends + batches, data
    found, position = [], 0
    while position < wrote:
        found.append(records.log_entry(records.decode_record(log, position, wrote, check_crc=True)))
        position += found[-1].size
    assert found == range_entries(log, 0, 0, wrote, records.LogEntry), data
    made = range_runs(log, 0, 0, wrote, QueueRun, Dispatched)
    assert made is not None, data
    assert made[1] == len(found) == sum(run[1] for run in runs), data


def _range(data: bytes) -> None:
    """What is dispatched of a damaged log is what Python reads there; the index is written no further than it has room."""
    start = min(7, len(data))  # in a file that begins before it
    log = memoryview(bytes(start) + data)
    found = range_entries(log, -start, 0, len(data), records.LogEntry)
    runs = range_runs(log, -start, 0, len(data), QueueRun, Dispatched)
    index = memoryview(bytearray(40 + 5 * 4 + 9 * 20))
    done, number, *_ = index_range(IndexState(index, 5, 1, 9, 0), log, -start, 0, len(data))
    assert 0 <= done <= len(data), data
    assert 1 <= number <= 9, data
    if found is None:
        return
    read, position = [], 0
    while position < len(data):
        read.append(records.log_entry(records.decode_record(data, position, len(data), check_crc=False)))
        position += read[-1].size
    assert found == read, data
    if runs is not None and read:
        assert (runs[1], runs[2][:2]) == (len(read), (read[-1].log_offset, read[-1].size)), data


def _unit_run(random: Random, log: bytes, data: bytes) -> None:
    """Reads of what units point at, whatever that is: what is found is sound and lies where units say."""
    rows = _rows(log)[1]
    units = b"".join([UNIT.pack(row[0], row[1], row[5]) for row in rows]) * random.randrange(1, 3)
    units = spoil(random, units)
    units = units[: len(units) // UNIT_BYTES * UNIT_BYTES]
    codes = random.choice((None, None, TagTest(frozenset((97, 0))).packed, TagTest(frozenset((-1,))).packed))
    base, first = random.choice((0, 0, 91)), random.choice((0, 0, 5))
    args = (
        memoryview(units), random.choice((1, 2, 32)), random.choice((1, 200, 1 << 20)), memoryview(data), base,
        random.choice((len(data), len(data) + 9, 200)), 0, first, True, codes, random.choice((-1, -1, 0, 150)),
    )  # fmt: skip
    found = verified_run(*args)
    if found is None:
        return
    looked, taken, total, chunks = found
    made = b"".join(chunks)
    assert (len(made), taken <= looked <= len(units) // UNIT_BYTES) == (total, True), (args, bytes(units), data)
    position = count = 0
    while position < total:
        position += records.decode_record(made, position, total, check_crc=True).size
        count += 1
    assert count == taken, (args, bytes(units), data)


def run(inputs: int, seed: int) -> None:
    random = Random(seed)
    frames = _frames()
    batch = encode_batch(
        [BatchItem(0, b"one", b"KEYS\x01k\x02"), BatchItem(3, b"", b""), BatchItem(1, b"three" * 9, b"")]
    )
    sends, signed = _sends(), _signed_sends()
    grant = Grant(_ACCOUNT.access_key.encode(), hmac_key(_ACCOUNT.secret_key), False, {}, {}, None)
    for frame in signed:
        _fast_sends(frame, grant)
    for number in range(inputs):
        kind = number % 4
        _fast_sends(spoil(random, b"".join(random.choices(signed, k=random.randrange(1, 12)))), grant)
        _fast_sends(spoil(random, b"".join(random.choices(sends, k=random.randrange(1, 4)))))
        if kind < 2:
            stream = b"".join(random.choices(frames, k=random.randrange(1, 3)))
            stream = spoil(random, stream)
            _both(_received, stream, connection, "take_frames")
            _pulls(stream)
        elif kind == 2:
            _both(_split, spoil(random, batch), records, "split_batch")
        else:
            good = _log(random)
            log = spoil(random, good)
            _both(_rows, log, record_runs, "read_run")
            _sound(log)
            _both(_table, log, record_table, "locate_run")
            _both(_properties, log, property_columns, "take_properties")
            _bodies(log)
            _outgoing(random, log)
            _range(log)
            _unit_run(random, good, log)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--inputs", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    if _impl.NAME != "c":
        raise SystemExit("nothing was compiled: python hatch_build.py")
    run(args.inputs, args.seed)
    print(f"{args.inputs} inputs, seed {args.seed}: no difference")


if __name__ == "__main__":
    main()
