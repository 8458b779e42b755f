from __future__ import annotations

import struct
import zlib

import pytest

from rocketline.errors import RemoteProtocolError
from rocketline.protocol.bodies import (
    DataVersion,
    RegisterBrokerBody,
    TopicConfig,
    TopicConfigSerializeWrapper,
    TopicQueueMappingInfo,
    decode_registration,
    encode_body,
    encode_registration,
)

TOPICS = {
    "T": TopicConfig("T", 4, 8, 6, attributes={"message.type": "FIFO", "note": "with spaces"}),
    "U": TopicConfig("U", 1, 1, 2, "MULTI_TAG"),
}
BODY = RegisterBrokerBody(TopicConfigSerializeWrapper(DataVersion(1, 2, 3), TOPICS), ["f:1"])


def sized(text: bytes) -> bytes:
    return struct.pack(">i", len(text)) + text


def packed(*topics: bytes, tail: bytes = struct.pack(">i", 0)) -> bytes:
    parts = (sized(b'{"counter":1}'), struct.pack(">i", len(topics)), *map(sized, topics), sized(b"[]"), tail)
    return zlib.compress(b"".join(parts))


def test_plain() -> None:
    assert decode_registration(encode_registration(BODY), False, 493) == BODY


def test_compressed() -> None:
    data = encode_registration(BODY, compressed=True)
    again = decode_registration(data, True, 493)
    assert again.topic_config_serialize_wrapper.topic_config_table == TOPICS
    assert again.topic_config_serialize_wrapper.data_version == DataVersion(1, 2, 3)
    assert again.filter_server_list == ["f:1"]


def test_compressed_mappings_only_from_5_0_on() -> None:
    mapping = TopicQueueMappingInfo("T", "__global__", 4, "b", 1, False, {0: 1})
    body = RegisterBrokerBody(TopicConfigSerializeWrapper(topic_queue_mapping_info_map={"T": mapping}))
    data = encode_registration(body, compressed=True)
    assert decode_registration(data, True, 413).topic_config_serialize_wrapper.topic_queue_mapping_info_map == {
        "T": mapping
    }
    assert decode_registration(data, True, 412).topic_config_serialize_wrapper.topic_queue_mapping_info_map is None
    assert decode_registration(packed(b"T 4 8 6 SINGLE_TAG", tail=b""), True, 407).topic_config_serialize_wrapper


def test_compressed_text_of_a_topic() -> None:
    for text in (b"T 4 8 6 SINGLE_TAG", b"T 4 8 6 SINGLE_TAG ", b"T 4 8 6 SINGLE_TAG {}"):
        body = decode_registration(packed(text), True, 493)
        assert body.topic_config_serialize_wrapper.topic_config_table == {"T": TopicConfig("T", 4, 8, 6)}


def test_brokers_before_3_0_11_send_the_bare_table() -> None:
    table = BODY.topic_config_serialize_wrapper
    assert decode_registration(encode_body(table), False, 36).topic_config_serialize_wrapper == table


def test_no_body() -> None:
    assert decode_registration(b"", False, 493) == RegisterBrokerBody()


@pytest.mark.parametrize(
    "data",
    [
        b"x", encode_registration(BODY), zlib.compress(b""), zlib.compress(sized(b"{}")), zlib.compress(sized(b"[]")),
        zlib.compress(struct.pack(">i", -1)), zlib.compress(struct.pack(">i", 2**31 - 1)), packed(b"T"), packed(b"T 4 8 6"),
        packed(b"T x 8 6 SINGLE_TAG"), packed(b"T 4 8 99999999999 SINGLE_TAG"), packed(b"T 4 8 6 SINGLE_TAG {"),
        packed(b"\xff"),
        packed(b"T 4 8 6 SINGLE_TAG []"), packed(b"T 4 8 6 SINGLE_TAG", tail=b""), packed(b"T 4 8 6 SINGLE_TAG")[:-5],
        zlib.compress(sized(b"{}") + struct.pack(">i", 2**31 - 1)),
    ],
)  # fmt: skip
def test_compressed_refused(data: bytes) -> None:
    with pytest.raises(RemoteProtocolError):
        decode_registration(data, True, 493)


def test_compressed_cut_anywhere_is_refused() -> None:
    data = encode_registration(BODY, compressed=True)
    for size in range(1, len(data)):
        with pytest.raises(RemoteProtocolError):
            decode_registration(data[:size], True, 493)


def test_inflation_is_capped() -> None:
    with pytest.raises(RemoteProtocolError, match="more than 67108864 bytes"):
        decode_registration(zlib.compress(bytes(65 * 1024 * 1024)), True, 493)
