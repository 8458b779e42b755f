"""A message that is decoded as it is looked at is the one that would have been decoded at once."""

from __future__ import annotations

import copy
import dataclasses
import pickle
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocketline.errors import CorruptRecord, ProtocolError
from rocketline.message import MessageView
from rocketline.protocol.compression import TYPES, compress, decompress
from rocketline.protocol.message_ids import decode_host, encode_host, offset_id
from rocketline.protocol.properties import decode_properties
from rocketline.protocol.record_layout import BORN_IPV6, COMPRESSED, STORE_IPV6
from rocketline.protocol.records import Buffer, RecordHead, decode_message, decode_record, encode_record, topic_part

FIELDS = [field.name for field in dataclasses.fields(MessageView)]
int32 = st.integers(-(1 << 31), (1 << 31) - 1)
int64 = st.integers(-(1 << 63), (1 << 63) - 1)
hosts = st.builds(encode_host, st.ip_addresses().map(str), st.integers(0, 65535))
topics = st.text(st.characters(exclude_categories=["Cs"]), max_size=200)
ITEMS = [
    b"TAGS\x01a\x02",
    b"KEYS\x01k l\x02",
    b"UNIQ_KEY\x01u\x02",
    b"TIMES\x013\x02",
    b"\x01\x02",
    b"\xff\x01\xfe\x02",
]
encoded_properties = st.binary(max_size=60) | st.lists(st.sampled_from(ITEMS)).map(b"".join)
changes = st.dictionaries(st.sampled_from(["TAGS", "TIMES", "MIN_OFFSET"]), st.none() | st.text(max_size=3))
buffers = st.sampled_from([bytes, bytearray, memoryview])


@st.composite
def records(draw: st.DrawFn) -> bytes:
    body, born, store = draw(st.binary(max_size=100)), draw(hosts), draw(hosts)
    sys_flag = (BORN_IPV6 if len(born) == 20 else 0) | (STORE_IPV6 if len(store) == 20 else 0)
    if draw(st.booleans()):
        kind = draw(st.sampled_from(list(TYPES.values())))
        body, sys_flag = compress(body, kind), sys_flag | COMPRESSED | kind
    magic, topic = topic_part(draw(topics))
    return encode_record(
        RecordHead(
            magic,
            topic,
            draw(int32),
            draw(int64),
            draw(int64),
            draw(int32),
            sys_flag,
            draw(int64),
            born,
            draw(int64),
            store,
            draw(int32),
            draw(int64),
        ),
        body,
        draw(encoded_properties),
    )


def decoded_at_once(
    buffer: Buffer, position: int, limit: int, changed: dict[str, str | None] | None = None
) -> MessageView:
    record = decode_record(buffer, position, limit, check_crc=True)
    body, sys_flag = bytes(record.body), record.sys_flag
    if sys_flag & COMPRESSED:
        body, sys_flag = decompress(body, sys_flag), sys_flag & ~COMPRESSED
    properties: dict[str, Any] = decode_properties(record.properties.decode("utf-8", "replace")) | (changed or {})
    return MessageView(
        topic=record.topic,
        body=body,
        properties={name: value for name, value in properties.items() if value is not None},
        queue_id=record.queue_id,
        queue_offset=record.queue_offset,
        log_offset=record.log_offset,
        born_ms=record.born_ms,
        born_host=decode_host(record.born_host),
        store_ms=record.store_ms,
        store_host=decode_host(record.store_host),
        reconsume_times=record.reconsume_times,
        flag=record.flag,
        sys_flag=sys_flag,
        body_crc=record.body_crc,
        prepared_log_offset=record.prepared_log_offset,
        stored_bytes=record.size,
        offset_id=offset_id(record.store_host, record.log_offset),
    )


@given(records(), buffers, st.permutations(FIELDS), changes)
def test_fields_in_any_order(
    record: bytes, buffer: type[Buffer], order: list[str], changed: dict[str, str | None]
) -> None:
    data = buffer(b"##" + record + b"##")
    wanted = decoded_at_once(data, 2, len(data), changed)
    message = decode_message(data, 2, len(data), changes=changed)
    for name in order + order:
        found, expected = getattr(message, name), getattr(wanted, name)
        assert (type(found), found) == (type(expected), expected), name
    assert message == wanted and wanted == message


@given(records(), st.sets(st.sampled_from(FIELDS)))
def test_copies_know_all_that_was_never_looked_at(record: bytes, looked_at: set[str]) -> None:
    wanted = decoded_at_once(record, 0, len(record))

    def fresh() -> MessageView:
        message = decode_message(record, 0, len(record))
        for name in looked_at:
            getattr(message, name)
        return message

    assert fresh() == wanted == fresh()
    assert repr(fresh()) == repr(wanted)
    assert copy.copy(fresh()) == copy.deepcopy(fresh()) == wanted
    for protocol in range(2, pickle.HIGHEST_PROTOCOL + 1):
        assert pickle.loads(pickle.dumps(fresh(), protocol)) == wanted
    assert dataclasses.replace(fresh(), flag=9) == dataclasses.replace(wanted, flag=9)
    assert dataclasses.asdict(fresh()) == dataclasses.asdict(wanted)


@given(records(), buffers, st.data())
def test_what_cannot_be_read_says_so_at_once(record: bytes, buffer: type[Buffer], data: st.DataObject) -> None:
    damaged = bytearray(record)
    for _ in range(data.draw(st.integers(0, 2))):
        damaged[data.draw(st.integers(0, len(record) - 1))] = data.draw(st.integers(0, 255))
    content = buffer(bytes(damaged))
    limit = data.draw(st.just(len(record)) | st.integers(0, len(record)))
    try:
        wanted = decoded_at_once(content, 0, limit)
    except (CorruptRecord, ProtocolError) as error:
        with pytest.raises(type(error)) as raised:
            decode_message(content, 0, limit)
        assert str(raised.value) == str(error)
    else:
        assert decode_message(content, 0, limit) == wanted
