"""A broker's registration with a name server: topics as JSON, or in the compressed form.

Compressed: one zlib stream of, every length and count in 4 bytes,

    length + data version (JSON)
    topic count, per topic: length + `name read write perm filterType attributes(JSON)`
    length + filter servers (JSON)
    mapping count, per mapping: length + mapping (JSON)      from request version 413 on

The short topic text carries neither the order flag nor the system flag.
"""

from __future__ import annotations

import struct
import zlib

import msgspec
from msgspec import field

from rocketline.errors import RemoteProtocolError
from rocketline.protocol.bodies.json_body import Body, decode_body, encode_body
from rocketline.protocol.bodies.topics import (
    DataVersion,
    TopicConfig,
    TopicConfigSerializeWrapper,
    TopicQueueMappingInfo,
)
from rocketline.protocol.compression import ZLIB, decompress

MAX_REGISTRATION_BYTES = 64 * 1024 * 1024
"""Largest inflated registration: some 400,000 topics."""

OLDEST_WITH_BODY = 37
OLDEST_WITH_MAPPINGS = 413
"""Older request versions send only the topic table, or a compressed body without mappings."""

_INT = struct.Struct(">i")


class RegisterBrokerBody(Body):
    topic_config_serialize_wrapper: TopicConfigSerializeWrapper = field(default_factory=TopicConfigSerializeWrapper)
    filter_server_list: list[str] = field(default_factory=list)


def encode_registration(body: RegisterBrokerBody, compressed: bool = False) -> bytes:
    return _pack(body) if compressed else encode_body(body)


def decode_registration(data: bytes, compressed: bool, version: int) -> RegisterBrokerBody:
    """The registration of a broker that announced `version`; RemoteProtocolError when it is invalid."""
    if not data:
        return RegisterBrokerBody()
    if version < OLDEST_WITH_BODY:
        return RegisterBrokerBody(decode_body(TopicConfigSerializeWrapper, data))
    if not compressed:
        return decode_body(RegisterBrokerBody, data)
    inflated = decompress(data, ZLIB, MAX_REGISTRATION_BYTES)
    return _unpack(_Reader(inflated), with_mappings=version >= OLDEST_WITH_MAPPINGS)


def _pack(body: RegisterBrokerBody) -> bytes:
    topics = body.topic_config_serialize_wrapper
    mappings = topics.topic_queue_mapping_info_map or {}
    texts = [_topic_text(config) for config in topics.topic_config_table.values()]
    parts = [
        _sized(encode_body(topics.data_version)),
        _INT.pack(len(texts)),
        *map(_sized, texts),
        _sized(encode_body(body.filter_server_list)),
        _INT.pack(len(mappings)),
        *(_sized(encode_body(mapping)) for mapping in mappings.values()),
    ]
    return zlib.compress(b"".join(parts), 9)


def _sized(data: bytes) -> bytes:
    return _INT.pack(len(data)) + data


def _topic_text(config: TopicConfig) -> bytes:
    numbers = f"{config.read_queue_nums} {config.write_queue_nums} {config.perm}"
    head = f"{config.topic_name} {numbers} {config.topic_filter_type} "
    return head.encode() + encode_body(config.attributes)


class _Reader:
    """Reads the inflated bytes from front to back."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._position = 0

    def number(self) -> int:
        if len(self._data) - self._position < 4:
            raise RemoteProtocolError(f"compressed registration ends at byte {self._position}, inside a length")
        value: int = _INT.unpack_from(self._data, self._position)[0]
        self._position += 4
        return value

    def block(self) -> bytes:
        size = self.number()
        end = self._position + size
        if size < 0 or end > len(self._data):
            raise RemoteProtocolError(f"compressed registration: {size} bytes at {self._position} do not fit")
        data = self._data[self._position : end]
        self._position = end
        return data


def _unpack(reader: _Reader, with_mappings: bool) -> RegisterBrokerBody:
    topics = TopicConfigSerializeWrapper(decode_body(DataVersion, reader.block()))
    for _ in range(reader.number()):
        config = _parse_topic(reader.block())
        topics.topic_config_table[config.topic_name] = config
    filter_servers = decode_body(list[str], reader.block())
    if with_mappings:
        topics.topic_queue_mapping_info_map = mappings = {}
        for _ in range(reader.number()):
            mapping = decode_body(TopicQueueMappingInfo, reader.block())
            mappings[mapping.topic or ""] = mapping
    return RegisterBrokerBody(topics, filter_servers)


def _parse_topic(data: bytes) -> TopicConfig:
    parts = data.decode("utf-8", "replace").split(" ", 5)
    if len(parts) < 5:
        raise RemoteProtocolError(f"compressed registration: {data[:80]!r} is not a topic")
    names = ("topicName", "readQueueNums", "writeQueueNums", "perm", "topicFilterType")
    try:
        config = msgspec.convert(dict(zip(names, parts)), TopicConfig, strict=False)
    except msgspec.ValidationError as error:
        raise RemoteProtocolError(f"compressed registration: topic {data[:80]!r}: {error}") from error
    if len(parts) == 6 and parts[5]:
        config.attributes = decode_body(dict[str, str], parts[5].encode())
    return config
