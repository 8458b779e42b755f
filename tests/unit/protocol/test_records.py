from __future__ import annotations

import pickle
import struct
from hashlib import sha256
from zlib import crc32

import pytest
from tests.golden.wire.load import ids, records

from rocketline.errors import CorruptRecord, ProtocolError
from rocketline.protocol.compression import TYPES, compress
from rocketline.protocol.message_ids import encode_host, offset_id
from rocketline.protocol.record_layout import (
    BORN_IPV6,
    COMPRESSED,
    MAGIC_BLANK,
    MAGIC_V1,
    MAGIC_V2,
    MIN_RECORD_BYTES,
    STORE_IPV6,
)
from rocketline.protocol.records import (
    BatchItem,
    Record,
    RecordHead,
    decode_batch,
    decode_message,
    decode_messages,
    decode_record,
    encode_batch,
    encode_blank,
    encode_record,
    index_keys,
    log_entry,
    read_start,
    record_size,
    topic_part,
)

V4 = encode_host("10.1.2.3", 10911)
V6 = encode_host("2001:db8::1", 10911)
REFERENCE = bytes.fromhex(
    "00000065 daa320a7 58932aac 00000003 00000007 000000000000000b 0000000000000016 00000000 00000000000003e8 "
    "7f00000100000001 00000000000007d0 0a01020300002a9f 00000000 0000000000000000 00000002 6869 01 54 0007 54414753014102"
)


def make(
    body: bytes = b"hi",
    topic: str = "T",
    properties: bytes = b"TAGS\x01A\x02",
    sys_flag: int = 0,
    born: bytes = V4,
    store: bytes = V4,
) -> bytes:
    magic, raw_topic = topic_part(topic)
    return encode_record(
        RecordHead(magic, raw_topic, 3, 11, 22, 7, sys_flag, 1000, born, 2000, store, 1, 99), body, properties
    )


def reencode(record: Record) -> bytes:
    magic, topic = topic_part(record.topic)
    return encode_record(
        RecordHead(
            magic,
            topic,
            record.queue_id,
            record.queue_offset,
            record.log_offset,
            record.flag,
            record.sys_flag,
            record.born_ms,
            record.born_host,
            record.store_ms,
            record.store_host,
            record.reconsume_times,
            record.prepared_log_offset,
        ),
        record.body,
        record.properties,
    )


def test_reference_record() -> None:
    magic, topic = topic_part("T")
    born = encode_host("127.0.0.1", 1)
    assert (
        encode_record(RecordHead(magic, topic, 3, 11, 22, 7, 0, 1000, born, 2000, V4, 0, 0), b"hi", b"TAGS\x01A\x02")
        == REFERENCE
    )
    message = decode_message(REFERENCE, 0, len(REFERENCE))
    assert (message.topic, message.body, message.properties, message.tag) == ("T", b"hi", {"TAGS": "A"}, "A")
    assert (message.queue_id, message.queue_offset, message.log_offset, message.flag) == (3, 11, 22, 7)
    assert (message.born_ms, message.born_host, message.store_ms, message.store_host) == (
        1000,
        "127.0.0.1:1",
        2000,
        "10.1.2.3:10911",
    )
    assert (message.body_crc, message.stored_bytes) == (1486039724, 101)
    assert message.message_id == message.offset_id == offset_id(V4, 22)


def test_records_of_apaches_commit_log() -> None:
    flags, magics = set(), set()
    for data, noted in records():
        record = decode_record(data, 0, len(data), check_crc=True)
        flags.add(record.sys_flag)
        magics.add(read_start(data, 0)[1])
        assert reencode(record) == data
        message = decode_message(data, 0, len(data))
        if noted is None:
            continue
        assert (message.topic, message.queue_id, message.queue_offset) == (
            noted["topic"],
            noted["queueId"],
            noted["queueOffset"],
        )
        assert (message.offset_id, message.message_id) == (noted["offsetMsgId"], noted["msgId"])
        assert noted["properties"].items() <= message.properties.items()
        assert len(message.body) == noted["bodyLen"]
        if "body" in noted:
            assert message.body.hex() == noted["body"]
        else:
            assert sha256(message.body).hexdigest() == noted["bodySha256"]
    assert flags >= {0, 0x101, 0x201, 0x301, 0x8, 0xC0}
    assert magics == {MAGIC_V1, MAGIC_V2}


def test_messages_encoded_by_apaches_client() -> None:
    seen = set()
    for vector in ids()["message_encode"]:
        data = bytes.fromhex(vector["encoded"])
        record = decode_record(data, 0, len(data))
        seen.add((read_start(data, 0)[1], record.sys_flag))
        assert (record.topic, record.queue_id, record.flag) == (vector["topic"], vector["queueId"], vector["flag"])
        assert (record.queue_offset, record.log_offset) == (vector["queueOffset"], vector["commitLogOffset"])
        assert log_entry(record).properties == vector["properties"]
        again = bytearray(reencode(record))
        again[8:12] = data[8:12]  # that encoder leaves the CRC 0
        assert bytes(again) == data
    assert seen == {(MAGIC_V1, 0), (MAGIC_V1, BORN_IPV6 | STORE_IPV6)}


@pytest.mark.parametrize(("born", "store"), [(V4, V4), (V6, V4), (V4, V6), (V6, V6)])
@pytest.mark.parametrize("topic", ["T", "t" * 127, "%RETRY%" + "t" * 248])
def test_hosts_and_topics_of_every_width(born: bytes, store: bytes, topic: str) -> None:
    sys_flag = (BORN_IPV6 if len(born) == 20 else 0) | (STORE_IPV6 if len(store) == 20 else 0)
    data = make(topic=topic, sys_flag=sys_flag, born=born, store=store)
    assert len(data) == record_size(2, len(topic_part(topic)[1]), 7, sys_flag)
    assert read_start(data, 0) == (len(data), MAGIC_V1 if len(topic) <= 127 else MAGIC_V2)
    message = decode_message(b"xx" + data, 2, 2 + len(data))
    assert message.topic == topic
    assert message.born_host == ("[2001:db8::1]:10911" if len(born) == 20 else "10.1.2.3:10911")
    assert message.store_host == ("[2001:db8::1]:10911" if len(store) == 20 else "10.1.2.3:10911")
    assert (message.reconsume_times, message.prepared_log_offset, message.sys_flag) == (1, 99, sys_flag)
    assert len(message.offset_id) == (56 if len(store) == 20 else 32)


def test_memoryviews_are_read_without_copying_the_body() -> None:
    data = make(b"body")
    record = decode_record(memoryview(data), 0, len(data), check_crc=True)
    assert isinstance(record.body, memoryview)
    assert record.body == b"body"
    assert log_entry(record).properties == {"TAGS": "A"}


@pytest.mark.parametrize("kind", TYPES.values(), ids=TYPES)
def test_compressed_bodies(kind: int) -> None:
    data = make(compress(b"x" * 5000, kind), sys_flag=COMPRESSED | kind)
    message = decode_message(data, 0, len(data))
    assert message.body == b"x" * 5000
    assert message.sys_flag == kind
    assert message.body_problem is None
    left = decode_message(data, 0, len(data), inflates=False)
    assert (left.body, left.sys_flag, left.body_problem) == (compress(b"x" * 5000, kind), COMPRESSED | kind, None)


@pytest.mark.parametrize("kind", [*TYPES.values(), 0, 0x700], ids=[*TYPES, "none", "unknown"])
def test_bodies_that_cannot_be_inflated_cost_no_neighbour(kind: int) -> None:
    bad, good = make(b"no stream of any kind", sys_flag=COMPRESSED | kind), make(b"good")
    broken, behind = decode_messages(bad + good)
    assert (broken.body, broken.sys_flag, behind.body) == (b"no stream of any kind", COMPRESSED | kind, b"good")
    assert broken.body_problem
    assert behind.body_problem is None
    assert (pickle.loads(pickle.dumps(broken)) == broken, broken.properties) == (True, {"TAGS": "A"})


@pytest.mark.parametrize("kind", TYPES.values(), ids=TYPES)
def test_bodies_that_inflate_past_the_limit_stay_packed(kind: int) -> None:
    packed = compress(b"x" * 5000, kind)
    data = make(packed, sys_flag=COMPRESSED | kind)
    message = decode_message(data, 0, len(data), max_body_bytes=4999)
    assert (message.body, message.body_problem) == (packed, "compressed body inflates to more than 4999 bytes")


def test_a_body_of_negative_length_whose_other_lengths_fit() -> None:
    data = bytearray(make(b"", "t" * 100) + b"t" * 155)
    data[:4] = struct.pack(">i", len(data))
    data[84:88] = struct.pack(">i", -1)  # its last byte, 255, then stands where the topic's length does
    data[88 : 88 + 255] = b"t" * 255
    data[88 + 255 :] = struct.pack(">h", len(data) - 88 - 257) + bytes(len(data) - 88 - 257)
    for decode in (decode_record, decode_message):
        with pytest.raises(CorruptRecord, match=f"total {len(data)}, body -1"):
            decode(bytes(data), 0, len(data))


def test_several_messages_back_to_back() -> None:
    bodies = [b"a", b"", b"ccc"]
    data = b"".join(make(body) for body in bodies)
    assert [message.body for message in decode_messages(data)] == bodies
    assert [message.body for message in decode_messages(memoryview(data))] == bodies
    assert decode_messages(b"") == []


def test_blank() -> None:
    blank = encode_blank(1234)
    assert read_start(blank, 0) == (1234, MAGIC_BLANK)
    with pytest.raises(CorruptRecord, match="too few"):
        decode_record(blank, 0, 8)
    with pytest.raises(CorruptRecord, match="0xcbd43194"):
        decode_record(blank + bytes(200), 0, 208)


def test_cut_anywhere_is_refused() -> None:
    for data in (make(), make(sys_flag=BORN_IPV6 | STORE_IPV6, born=V6, store=V6), make(topic="t" * 200)):
        for limit in range(len(data)):
            with pytest.raises(CorruptRecord):
                decode_record(data, 0, limit)
            with pytest.raises(CorruptRecord):
                decode_record(data[:limit], 0, limit)


@pytest.mark.parametrize(
    ("at", "value"),
    [
        (0, 0),
        (0, -1),
        (0, 90),
        (0, 100),
        (0, 102),
        (0, 2**31 - 1),
        (84, -1),
        (84, 1),
        (84, 3),
        (84, 2**31 - 1),
        (4, 0),
        (4, MAGIC_V2),
    ],
)
def test_lengths_that_lie_are_refused(at: int, value: int) -> None:
    data = bytearray(REFERENCE + bytes(50))
    struct.pack_into(">i", data, at, value)
    with pytest.raises(CorruptRecord):
        decode_record(bytes(data), 0, len(data))


@pytest.mark.parametrize(("at", "value"), [(90, 0), (90, 2), (90, 255), (93, 6), (93, 8)])
def test_topic_and_properties_lengths_that_lie_are_refused(at: int, value: int) -> None:
    data = bytearray(REFERENCE)
    data[at] = value
    with pytest.raises(CorruptRecord):
        decode_record(bytes(data), 0, len(data))


def test_crc() -> None:
    data = bytearray(make(b"body"))
    data[88] ^= 1
    assert decode_record(bytes(data), 0, len(data)).body != b"body"
    with pytest.raises(CorruptRecord, match="CRC"):
        decode_record(bytes(data), 0, len(data), check_crc=True)
    with pytest.raises(CorruptRecord, match="CRC"):
        decode_messages(bytes(data))


def test_crc_is_javas() -> None:
    for vector in ids()["crc"]:
        body = bytes.fromhex(vector["hex"])
        assert crc32(body) & 0x7FFFFFFF == vector["bodyCRC"]
        data = make(body)
        assert decode_record(data, 0, len(data), check_crc=True).body_crc == vector["bodyCRC"]


def test_topic_that_is_not_utf8() -> None:
    data = bytearray(make(topic="T"))
    data[91] = 0xFF
    with pytest.raises(CorruptRecord, match="UTF-8"):
        decode_record(bytes(data), 0, len(data))


def test_properties_that_are_not_utf8_are_replaced() -> None:
    data = make(properties=b"a\x01caf\xe9\x02")
    assert decode_message(data, 0, len(data)).properties == {"a": "caf\ufffd"}


def test_smallest_record() -> None:
    data = make(b"", "", b"")
    assert len(data) == MIN_RECORD_BYTES == 91
    assert decode_record(data, 0, len(data)).topic == ""


def test_log_entry_and_its_index_keys() -> None:
    data = make(properties=b"TAGS\x01TagA\x02KEYS\x01k1 k2  k3\x02UNIQ_KEY\x01U\x02")
    entry = log_entry(decode_record(data, 0, len(data)))
    assert (entry.tags_code, entry.log_offset, entry.queue_offset, entry.size) == (2598919, 22, 11, len(data))
    assert index_keys(entry.properties) == ["U", "k1", "k2", "k3", "T#TagA"]
    plain = make(properties=b"")
    bare = log_entry(decode_record(plain, 0, len(plain)))
    assert (bare.tags_code, index_keys(bare.properties)) == (0, [])


def test_batch_as_apaches_client_writes_it() -> None:
    data = bytes.fromhex(ids()["batch_encode"]["encoded"])
    items = decode_batch(data)
    assert [(item.flag, bytes(item.body)) for item in items] == [(0, b"batch0"), (1, b"batch1"), (2, b"batch2")]
    assert items[1].properties == b"KEYS\x01k1\x02WAIT\x01true\x02TAGS\x01T1\x02"
    assert encode_batch(items) == data
    assert decode_batch(memoryview(data))[2].body == b"batch2"
    assert decode_batch(b"") == []


def test_batch_with_empty_messages() -> None:
    items = [BatchItem(0, b"", b""), BatchItem(-1, b"", b"a\x01b\x02")]
    assert decode_batch(encode_batch(items)) == items


def test_batch_cut_anywhere_is_refused() -> None:
    data = encode_batch([BatchItem(1, b"one", b"a\x01b\x02"), BatchItem(2, b"", b"")])
    ends = {0, 22 + 3 + 4}
    for size in range(len(data)):
        if size not in ends:
            with pytest.raises(ProtocolError):
                decode_batch(data[:size])


@pytest.mark.parametrize(
    ("at", "value"), [(0, 0), (0, -1), (0, 21), (0, 28), (0, 30), (0, 2**31 - 1), (16, -1), (16, 2), (16, 2**31 - 1)]
)
def test_batch_lengths_that_lie_are_refused(at: int, value: int) -> None:
    data = bytearray(encode_batch([BatchItem(1, b"one", b"a\x01b\x02")]) + bytes(30))
    struct.pack_into(">i", data, at, value)
    with pytest.raises(ProtocolError):
        decode_batch(bytes(data))
