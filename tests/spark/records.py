"""Stored records of every shape, for tests of the columns: made by Hypothesis, and read one by one for comparison."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from hypothesis import strategies as st

from rocketline.message import MessageView
from rocketline.protocol.compression import TYPES, compress
from rocketline.protocol.message_ids import encode_host
from rocketline.protocol.properties import encode_properties
from rocketline.protocol.record_layout import BORN_IPV6, COMPRESSED, MAGIC_V2, STORE_IPV6
from rocketline.protocol.records import RecordHead, decode_message, encode_record, topic_part

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
LAST_MS = 253_402_300_799_999
CAP_BYTES = 4096

int32 = st.integers(-(1 << 31), (1 << 31) - 1)
int64 = st.integers(-(1 << 63), (1 << 63) - 1)
times = st.integers(0, LAST_MS) | int64
text = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
names = st.sampled_from(["TAGS", "KEYS", "UNIQ_KEY", "WAIT", "ключ"]) | text
topics = st.sampled_from(["orders", "%RETRY%g", "заказы", "", "x" * 127, "y" * 200]) | text
hosts = st.builds(encode_host, st.ip_addresses().map(str), st.integers(0, 65535))
tidy_properties = st.dictionaries(names, text, max_size=6).map(lambda pairs: encode_properties(pairs).encode())
odd_properties = st.lists(
    st.sampled_from([b"\x01", b"\x02", b"TAGS", b"KEYS", b"UNIQ_KEY", b"a", b"\x00", b"\xff", "ä".encode()]),
    max_size=12,
).map(b"".join)


def record(
    topic: str = "orders",
    body: bytes = b"hello",
    properties: bytes = b"",
    *,
    queue_id: int = 0,
    queue_offset: int = 0,
    log_offset: int = 0,
    flag: int = 0,
    sys_flag: int = 0,
    born_ms: int = 1_700_000_000_000,
    store_ms: int = 1_700_000_000_001,
    born_host: bytes = encode_host("10.0.0.1", 4000),
    store_host: bytes = encode_host("127.0.0.1", 10911),
    reconsume_times: int = 0,
    prepared: int = 0,
    v2: bool = False,
) -> bytes:
    magic, raw_topic = topic_part(topic)
    if v2 and magic != MAGIC_V2:
        magic, raw_topic = MAGIC_V2, b"\0" + raw_topic
    sys_flag |= (BORN_IPV6 if len(born_host) > 8 else 0) | (STORE_IPV6 if len(store_host) > 8 else 0)
    return encode_record(
        RecordHead(
            magic,
            raw_topic,
            queue_id,
            queue_offset,
            log_offset,
            flag,
            sys_flag,
            born_ms,
            born_host,
            store_ms,
            store_host,
            reconsume_times,
            prepared,
        ),
        body,
        properties,
    )


@st.composite
def records(draw: st.DrawFn) -> bytes:
    """One record of any shape that a broker stores."""
    body = draw(st.binary(max_size=300))
    sys_flag = draw(st.sampled_from([0, 0x4, 0x8, 0xC]))
    if draw(st.booleans()):
        kind = draw(st.sampled_from(list(TYPES.values())))
        body, sys_flag = compress(body, kind), sys_flag | COMPRESSED | kind
    return record(
        draw(topics),
        body,
        draw(tidy_properties | odd_properties),
        queue_id=draw(int32),
        queue_offset=draw(int64),
        log_offset=draw(int64),
        flag=draw(int32),
        sys_flag=sys_flag,
        born_ms=draw(times),
        store_ms=draw(times),
        born_host=draw(hosts),
        store_host=draw(hosts),
        reconsume_times=draw(int32),
        prepared=draw(int64),
        v2=draw(st.booleans()),
    )


def expected_row(raw: bytes, broker_name: str | None = None) -> dict[str, Any]:
    """What a record's row must hold, by decoding it alone."""
    return row_of(decode_message(raw, 0, len(raw), CAP_BYTES), broker_name)


def row_of(view: MessageView, broker_name: str | None) -> dict[str, Any]:
    """The row of a message that was decoded alone."""
    return {
        "topic": view.topic,
        "brokerName": broker_name,
        "queueId": view.queue_id,
        "queueOffset": view.queue_offset,
        "commitLogOffset": view.log_offset,
        "msgId": view.message_id,
        "tags": view.tag,
        "keys": view.properties.get("KEYS"),
        "body": view.body,
        "properties": list(view.properties.items()),
        "bornTimestamp": _time(view.born_ms),
        "storeTimestamp": _time(view.store_ms),
        "bornHost": view.born_host,
        "reconsumeTimes": view.reconsume_times,
        "sysFlag": view.sys_flag,
        "flag": view.flag,
        "storeHost": view.store_host,
        "storeSize": view.stored_bytes,
        "bodyCRC": view.body_crc,
        "preparedTransactionOffset": view.prepared_log_offset,
    }


def _time(ms: int) -> datetime | None:
    return EPOCH + timedelta(milliseconds=ms) if -62_135_596_800_000 <= ms <= LAST_MS else None
