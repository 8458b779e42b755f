"""Micro benchmarks of the codecs, on the frames of the sync-send and pull workloads.

The two baselines show the speed of the machine at the time: read the others as multiples of them.
"""

from __future__ import annotations

import os
import struct
import zlib
from collections.abc import Callable

from bench.case import Work, case

BODY = b"abcdefgh" * 8 + os.urandom(64)
UNIQUE_ID = "7F0000012A1E14C214797DF6A2140000"
SEND_FIELDS = {"a": "bench_raw", "b": "bench-send", "c": "TBW102", "d": "4", "e": "0", "f": "0", "g": "1794740515350"}
SEND_FIELDS |= {"h": "0", "i": f"UNIQ_KEY\x01{UNIQUE_ID}\x02WAIT\x01true\x02", "j": "0", "k": "false", "m": "false"}
SEND_FIELDS |= {"n": "broker-a"}
ANSWER_FIELDS = {"queueId": "0", "transactionId": UNIQUE_ID, "msgId": "7F00000100002A9F0000000000015F7A"}
ANSWER_FIELDS |= {"TRACE_ON": "true", "MSG_REGION": "DefaultRegion", "queueOffset": "0"}
FRAMES_PER_READ = 32


@case("baseline: crc32 of 128 B")
def crc_baseline() -> Work:
    return lambda: zlib.crc32(BODY)


@case("baseline: struct pack of 15 fields")
def pack_baseline() -> Work:
    pack = struct.Struct(">iiiiiqqiq8sq8siqi").pack
    return lambda: pack(300, 1, 2, 3, 4, 5, 6, 7, 8, b"12345678", 9, b"12345678", 10, 11, 12)


def _send_header(encoding: int) -> bytes:
    from rocketline.protocol.command import Command
    from rocketline.protocol.header_codec import encode_header

    return encode_header(Command(310, SEND_FIELDS, BODY, opaque=1_234_567, version=493, encoding=encoding))


@case("header decode, JSON send")
def decode_json_send() -> Work:
    from rocketline.protocol.command import JSON
    from rocketline.protocol.header_codec import decode_header

    header = _send_header(JSON)
    return lambda: decode_header(JSON, header, BODY)


@case("header decode, binary send")
def decode_binary_send() -> Work:
    from rocketline.protocol.command import ROCKETMQ
    from rocketline.protocol.header_codec import decode_header

    header = _send_header(ROCKETMQ)
    return lambda: decode_header(ROCKETMQ, header, BODY)


@case("header encode, JSON send answer")
def encode_json_answer() -> Work:
    from rocketline.protocol.command import Command
    from rocketline.protocol.header_codec import encode_header

    answer = Command(0, ANSWER_FIELDS, opaque=1_234_567, flag=1, version=493)
    return lambda: encode_header(answer)


@case("frames split and decoded, JSON sends in one read", operations=FRAMES_PER_READ)
def receive_frames() -> Work:
    from rocketline.protocol.command import Command
    from rocketline.protocol.connection import Connection, frame_bytes

    frame = frame_bytes(Command(310, SEND_FIELDS, BODY, opaque=1_234_567, version=493))
    connection, data = Connection(), frame * FRAMES_PER_READ
    return lambda: list(connection.receive(data))


def _encode() -> Callable[[], bytes]:
    from rocketline.protocol.records import RecordHead, encode_record, topic_part

    magic, topic = topic_part("bench-send")
    properties = SEND_FIELDS["i"].encode()
    host = b"\x7f\x00\x00\x01\x00\x00\x2a\x9f"
    return lambda: encode_record(
        RecordHead(magic, topic, 0, 5, 4096, 0, 0, 1_700, host, 1_701, host, 0, 0), BODY, properties
    )


@case("record encode, 128 B body")
def encode_stored() -> Work:
    return _encode()


@case("record decode, as the dispatcher reads it")
def decode_stored() -> Work:
    from rocketline.protocol.records import decode_record

    record = _encode()()
    return lambda: decode_record(record, 0, len(record))


@case("pull answer of 32 records to messages", operations=32)
def decode_pulled() -> Work:
    from rocketline.protocol.records import decode_messages

    body = _encode()() * 32
    return lambda: decode_messages(body)
