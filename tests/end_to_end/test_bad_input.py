"""A running cluster attacked over raw sockets.

Every attack ends in a clear refusal or a closed connection. After each one a client that did nothing wrong is served on
the connection it had all along, every message stored before reads back byte for byte, also after a restart, no file lies
where none belongs, no answer carries a stack trace, and nothing in the servers failed in a way nobody had thought of.
"""

from __future__ import annotations

import asyncio
import json
import logging
import re
import struct
import subprocess
import sys
import zlib
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import Any

import lz4.frame
import pytest
from tests.support.patience import PATIENCE_S
from tests.unit.transport.peers import RawPeer

from rocketline.cli.servers.cluster import Cluster
from rocketline.protocol.codes import RequestCode, ResponseCode
from rocketline.protocol.command import JSON, ONEWAY, RESPONSE, ROCKETMQ, Command
from rocketline.protocol.compression import TYPES
from rocketline.protocol.connection import MAX_FRAME_BYTES, frame_bytes
from rocketline.protocol.headers import REQUEST_HEADERS, PullMessageHeader, SendMessageHeader
from rocketline.protocol.names import topic_problem
from rocketline.protocol.records import BatchItem, decode_messages, encode_batch
from rocketline.testing import LocalCluster

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

KEPT = "kept"
KEPT_COUNT = 25
STACK = re.compile(r"Traceback|\bFile \"|\.py\b|line \d+, in ")
STORE_ENTRIES = {"commitlog", "consumequeue", "index", "config", "checkpoint", "abort", "lock", "namesrv"} | {
    "rocketline.deleted",
    "rocketline.progress",
    "rocketline.queues",
}


# The victim


class Victim:
    """A cluster with messages in it, and a loyal client whose connection was there first."""

    def __init__(self, cluster: Cluster, loyal: RawPeer, folder: Path) -> None:
        self.cluster = cluster
        self.folder = folder
        self._loyal = loyal
        self._sent: list[bytes] = []

    @property
    def broker_port(self) -> int:
        return self.cluster.brokers[0].port

    @property
    def namesrv_port(self) -> int:
        return int(self.cluster.namesrv.rpartition(":")[2])

    @property
    def ports(self) -> tuple[int, int]:
        return self.broker_port, self.namesrv_port

    async def fill(self) -> None:
        for number in range(KEPT_COUNT):
            await self._send_one(b"message %d " % number * (number + 1))

    async def _send_one(self, body: bytes) -> None:
        await self._loyal.send_commands(send(KEPT, body))
        answer = await self._loyal.receive()
        assert (answer.code, (answer.ext or {})["queueOffset"]) == (ResponseCode.SUCCESS, str(len(self._sent)))
        self._sent.append(body)

    async def check(self) -> None:
        """It is well: the loyal client is served, a new one too, everything is there, and no file is where none belongs."""
        await self._send_one(b"after an attack")
        assert await read_all(self._loyal, KEPT) == self._sent
        for port in self.ports:
            async with attacker(port) as stranger:
                assert (await ask(stranger, Command(-7))).code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED
        self._check_files()

    def _check_files(self) -> None:
        assert {entry.name for entry in self.folder.iterdir()} == {"data"}
        assert {entry.name for entry in self.cluster.data.iterdir()} <= STORE_ENTRIES
        topics = [entry.name for entry in (self.cluster.data / "consumequeue").iterdir()]
        assert [name for name in topics if topic_problem(name)] == []

    async def check_after_restart(self) -> None:
        await self._loyal.close()
        await self.cluster.restart_broker("broker-a")
        self._loyal = await RawPeer.connect(self.broker_port)
        assert await read_all(self._loyal, KEPT) == self._sent

    async def leave(self) -> None:
        await self._loyal.close()


@pytest.fixture
async def victim(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> AsyncIterator[Victim]:
    unforeseen: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: unforeseen.append(context))
    caplog.set_level(logging.WARNING)
    async with LocalCluster(data=tmp_path / "data") as cluster:
        victim = Victim(cluster, await RawPeer.connect(cluster.brokers[0].port), tmp_path)
        await victim.fill()
        yield victim
        await victim.check()
        await victim.check_after_restart()
        await victim.leave()
    assert unforeseen == []
    records = [*caplog.get_records("call"), *caplog.get_records("teardown")]
    assert [record.getMessage() for record in records if record.levelno >= logging.ERROR] == []


# The attacker


class attacker:
    """A connection that is cut at the end, whatever state it is in."""

    def __init__(self, port: int) -> None:
        self._port = port

    async def __aenter__(self) -> RawPeer:
        self._peer = await RawPeer.connect(self._port)
        return self._peer

    async def __aexit__(self, *_: object) -> None:
        self._peer.abort()
        await self._peer.close()


async def ask(peer: RawPeer, command: Command) -> Command:
    await peer.send_commands(command)
    return await peer.receive()


async def is_closed_on(port: int, data: bytes) -> bytes:
    """What the server says before it hangs up on us; fails when it does not hang up."""
    async with attacker(port) as peer:
        with suppress(ConnectionError):  # it may hang up while we are still writing
            await peer.send(data)
        return await peer.read_until_closed()


def send(topic: str, body: bytes = b"x", **changes: Any) -> Command:
    header = SendMessageHeader("attackers", topic, "TBW102", 4, 0, 0, 1, 0, "UNIQ_KEY\x01U\x02")
    code = changes.pop("code", RequestCode.SEND_MESSAGE_V2)
    for name, value in changes.items():
        setattr(header, name, value)
    return Command(code, header.encode_long() if code == RequestCode.SEND_MESSAGE else header.encode(), body)


def pull(topic: str, queue_offset: int = 0, sys_flag: int = 4) -> Command:
    header = PullMessageHeader("loyal", topic, 0, queue_offset, 32, sys_flag, 0, 15_000, 0, "*")  # type: ignore[arg-type]
    return Command(RequestCode.PULL_MESSAGE, header.encode())


async def read_all(peer: RawPeer, topic: str) -> list[bytes]:
    bodies: list[bytes] = []
    while True:
        answer = await ask(peer, pull(topic, len(bodies)))
        if answer.code != ResponseCode.SUCCESS:
            assert answer.code in (ResponseCode.PULL_NOT_FOUND, ResponseCode.PULL_OFFSET_MOVED)
            return bodies
        bodies += [message.body for message in decode_messages(answer.body)]


def raw_frame(header: bytes, body: bytes = b"", encoding: int = JSON) -> bytes:
    return struct.pack(">II", 4 + len(header) + len(body), encoding << 24 | len(header)) + header + body


def is_clear(answer: Command) -> bool:
    """A refusal in words a person can read."""
    return bool(answer.remark) and not STACK.search(answer.remark or "")


# Bytes that are no frames


def _garbage() -> Iterable[bytes]:
    random = Random(20240607)
    yield from (random.randbytes(size) for size in (8, 100, 4096, 300_000))
    yield b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"
    yield bytes.fromhex("16030100f1010000ed0303") + random.randbytes(230)  # TLS client hello
    yield b"SSH-2.0-OpenSSH_9.6\r\n"
    yield b"\xff" * 64
    yield b"\x00" * 64


async def test_garbage_bytes_close_the_connection(victim: Victim) -> None:
    for port in victim.ports:
        for data in _garbage():
            assert await is_closed_on(port, data) == b"", data[:20]
    await victim.check()


@pytest.mark.parametrize("length", [0xFFFFFFFF, 0x80000000, 0x7FFFFFFF, MAX_FRAME_BYTES - 3, 3, 0])
async def test_impossible_lengths_are_refused_before_anything_is_kept_for_them(victim: Victim, length: int) -> None:
    """Four bytes are enough to know: nothing is awaited or reserved for a frame of 4 GiB."""
    for port in victim.ports:
        assert await is_closed_on(port, struct.pack(">I", length)) == b""
        assert await is_closed_on(port, struct.pack(">II", length, 10) + bytes(100)) == b""


async def test_a_header_longer_than_its_frame_or_than_any_header_is_refused(victim: Victim) -> None:
    for port in victim.ports:
        assert await is_closed_on(port, struct.pack(">II", 100, 97) + bytes(96)) == b""
        assert await is_closed_on(port, struct.pack(">II", 9_000_000, 8_000_000) + bytes(5000)) == b""


async def test_an_unknown_encoding_is_refused(victim: Victim) -> None:
    for port in victim.ports:
        for encoding in (2, 7, 255):
            assert await is_closed_on(port, raw_frame(b'{"code":30}', encoding=encoding)) == b""


async def test_half_frames_store_nothing(victim: Victim) -> None:
    frame = frame_bytes(send("halves", b"body " * 10))
    for cut in range(1, len(frame), 3):
        async with attacker(victim.broker_port) as peer:
            await peer.send(frame[:cut])
    await victim.check()
    async with attacker(victim.broker_port) as peer:
        assert (await ask(peer, pull("halves"))).code == ResponseCode.TOPIC_NOT_EXIST


async def test_many_who_never_finish_their_frame_hold_up_nobody(victim: Victim) -> None:
    frame = frame_bytes(send("halves", bytes(100_000)))
    peers = [await RawPeer.connect(port) for port in victim.ports for _ in range(100)]
    for number, peer in enumerate(peers):
        await peer.send(frame[: number * 7 + 1])
    await victim.check()
    for peer in peers:
        peer.abort()
        await peer.close()


async def test_good_frames_before_a_bad_one_are_answered(victim: Victim) -> None:
    good = frame_bytes(send("before", b"good")) * 3
    answers = await is_closed_on(victim.broker_port, good + b"\xff" * 20)
    assert answers.count(b'"code":0') == 3


# Headers that are no commands

BAD_JSON = [
    b"",
    b"{",
    b"null",
    b"[]",
    b"1",
    b'"code"',
    b"{}",
    b'{"code":null}',
    b'{"code":"ten"}',
    b'{"code":[10]}',
    b'{"code":{}}',
    b'{"code":99999999999}',
    b'{"code":1e400}',
    b'{"code":10,"opaque":"x"}',
    b'{"code":10,"opaque":9223372036854775808}',
    b'{"code":10,"flag":{}}',
    b'{"code":10,"version":[]}',
    b'{"code":10,"extFields":[]}',
    b'{"code":10,"extFields":"a=b"}',
    b'{"code":10,"extFields":7}',
    b'{"code":10,"extFields":{"a":{"$ref":"$"}}}',
    b'{"code":10,"remark":{"a":[]}}',
    b'{"code":10,"language":{}}',
    b'{"code":' + b"9" * 100_000 + b"}",
    b'{"code":10,"extFields":{"a":"\xff\xfe"}',
    b"[" * 1_000_000,
    b'{"a":' * 400_000,
    b'{"code":10,"extFields":' + b'{"a":' * 100_000 + b"1" + b"}" * 100_001,
    b'{"code":10,"extFields":{"a":' + b"[" * 50_000 + b"]" * 50_000 + b"}}",
    b"{" + b",".join(b'"k%d":1' % number for number in range(200_000)) + b"}",
    b"/*" * 500_000,
    b"'" + b"\\" * 200_001,
    b'{"code":10,"x":"' + b"\\u0041" * 300_000,
]


@pytest.mark.parametrize("header", BAD_JSON, ids=lambda header: repr(header[:44]))
async def test_a_header_that_is_no_command_closes_the_connection(victim: Victim, header: bytes) -> None:
    for port in victim.ports:
        assert await is_closed_on(port, raw_frame(header)) == b""


@pytest.mark.parametrize(
    "header",
    [
        b'{"code":10,"extFields":{"topic":5,"queueId":[1],"x":null,"batch":{"a":1}}}',
        b"{code:10,extFields:{0:'a',{a:1}:2}}",
        b'{"code":10,"code":11,"extFields":{"topic":"a","topic":"b"}}',
        b'{"code":10,"extFields":{"topic":"\\ud800","consumerGroup":"\\udfff"}}',
        b'{"code":10,"language":"KLINGON","version":-1,"remark":"?"}',
        b'{"code":38,"extFields":{"consumerGroup":"\\ud800"}}',
        b'{"code":11,"extFields":{"consumerGroup":"\\ud800","topic":"a","queueId":0,"queueOffset":0,"maxMsgNums":1,'
        b'"sysFlag":0,"commitOffset":0,"suspendTimeoutMillis":0,"subVersion":0}}',
    ],
    ids=lambda header: repr(header[:60]),
)
async def test_an_odd_header_is_answered_or_closed_and_never_ignored(victim: Victim, header: bytes) -> None:
    for port in victim.ports:
        async with attacker(port) as peer:
            await peer.send(raw_frame(header) + frame_bytes(Command(-7, opaque=99)))
            data = await _read_some(peer)
        assert data is None or is_clear(data)


async def _read_some(peer: RawPeer) -> Command | None:
    """The first answer, or None when the server closed instead."""
    try:
        return await peer.receive()
    except (AssertionError, ConnectionError):
        return None


def _binary_header(
    ext: bytes = b"", remark: bytes = b"", *, remark_size: int | None = None, ext_size: int | None = None
) -> bytes:
    fixed = struct.pack(">hBhii", 30, 0, 493, 1, 0)
    remark_part = struct.pack(">i", len(remark) if remark_size is None else remark_size) + remark
    return fixed + remark_part + struct.pack(">i", len(ext) if ext_size is None else ext_size) + ext


async def test_binary_headers_with_wrong_lengths_close_the_connection(victim: Victim) -> None:
    pair = struct.pack(">h", 5) + b"topic" + struct.pack(">i", 1) + b"T"
    headers = [_binary_header(pair)[:cut] for cut in range(len(_binary_header(pair)) - 1)]
    headers += [_binary_header(pair, remark_size=size) for size in (-1, 1 << 30, -(1 << 31))]
    headers += [_binary_header(pair, ext_size=size) for size in (-1, 1 << 30, len(pair) - 1, len(pair) + 1)]
    headers += [_binary_header(struct.pack(">h", size) + b"topic") for size in (-1, 32767, 4)]
    headers += [_binary_header(struct.pack(">h", 1) + b"t" + struct.pack(">i", size)) for size in (-1, 1 << 31 - 1)]
    for header in headers:
        assert await is_closed_on(victim.broker_port, raw_frame(header, encoding=ROCKETMQ)) == b"", header


async def test_answers_nobody_asked_for_are_ignored(victim: Victim) -> None:
    for port in victim.ports:
        async with attacker(port) as peer:
            await peer.send_commands(*(Command(0, {}, opaque=number, flag=RESPONSE) for number in range(-5, 500)))
            assert (await ask(peer, Command(-7, opaque=77))).opaque == 77


# Requests nobody serves, and fields that are not what they should be


async def test_unknown_codes_are_answered_with_3(victim: Victim) -> None:
    random = Random(3)
    unknown = [*(random.randrange(-(1 << 31), 1 << 31) for _ in range(200)), 0, 1, 9, 1500, 99999]
    known = set(RequestCode)
    for port in victim.ports:
        async with attacker(port) as peer:
            for code in set(unknown) - known:
                answer = await ask(peer, Command(code, {"topic": KEPT}, b"body"))
                assert (answer.code, is_clear(answer)) == (ResponseCode.REQUEST_CODE_NOT_SUPPORTED, True)


VALID = {
    "heartbeatTimeoutMillis": "120000",  # one that falls silent at once has its connection closed
    "b": "attacked",
    "c": "TBW102",
    "topic": "attacked",
    "defaultTopic": "TBW102",
    "consumerGroup": "attackers",
    "group": "attackers",
    "groupName": "attackers",
    "producerGroup": "attackers",
    "a": "attackers",
    "clientID": "c",
    "key": "k",
    "namespace": "n",
    "value": "v",
    "brokerName": "attacked",
    "brokerAddr": "127.0.0.1:1",
    "clusterName": "attacked",
    "cluster": "attacked",
    "topicFilterType": "SINGLE_TAG",
    "bname": "broker-a",
    "n": "broker-a",
}
BOOLEANS = {"k", "m", "batch", "unitMode", "order", "compressed", "force", "lo", "_UNIQUE_KEY_QUERY", "committed"}
BOOLEANS |= {"setZeroIfNotFound", "isForce", "acceptStandardJsonOnly", "cleanOffset", "enableActingMaster"}

BAD_VALUES = [
    "", " ", "x", "1.5", "1e3", "-1", " 1", "0x10", "1_000", "١", "NaN", "Infinity", "null", "true", "[]", "{}", "\x00",
    "99999999999", "-99999999999", "99999999999999999999", "9" * 5000, "../../x", "a b", "/etc/passwd", "..", "grün",
    "x" * 70_000, "\x01\x02", "%RETRY%", "%DLQ%../x", "$ref", "'; DROP TABLE topics; --", "\u202e", "🚀" * 40,
]  # fmt: skip


def _base_ext(code: int) -> dict[str, str]:
    """Fields of a request that make sense, as far as they can be guessed from their names."""
    header = REQUEST_HEADERS.get(code)
    if header is None:
        return {}
    names = header.__struct_encode_fields__
    if code in (RequestCode.SEND_MESSAGE, RequestCode.SEND_REPLY_MESSAGE):
        return send("attacked", code=RequestCode.SEND_MESSAGE).ext or {}
    return {name: VALID.get(name, "false" if name in BOOLEANS else "1") for name in names}


async def test_no_value_of_any_field_of_any_request_does_more_than_be_refused(victim: Victim) -> None:
    """Every request that is served, each of its fields with each bad value, as JSON and binary, answered and one-way."""
    for port in victim.ports:
        async with attacker(port) as peer:
            for code in sorted(RequestCode):
                base = _base_ext(code)
                if not base or (await ask(peer, Command(code, dict(base)))).code == 3:
                    continue
                await _attack_fields(peer, code, base)
        await victim.check()


async def _attack_fields(peer: RawPeer, code: int, base: dict[str, str]) -> None:
    for name in base:
        requests = []
        for number, value in enumerate(BAD_VALUES):
            encoding = ROCKETMQ if number % 2 and code < 0x8000 else JSON
            ext = {**base, name: value}
            requests.append(Command(code, ext, opaque=number, encoding=encoding))
            requests.append(Command(code, ext, opaque=-1, flag=ONEWAY))
        missing = {other: value for other, value in base.items() if other != name}
        requests.append(Command(code, missing, opaque=len(BAD_VALUES)))
        await peer.send_commands(*requests)
        # What changes a table is answered when that is saved, and others overtake it.
        answers = sorted(await peer.receive_all(len(BAD_VALUES) + 1), key=lambda answer: answer.opaque)
        for number, answer in enumerate(answers):
            assert answer.flag & RESPONSE, answer
            assert answer.opaque == number, (code, name, BAD_VALUES[number])
            assert not STACK.search(answer.remark or ""), answer
            if answer.code == ResponseCode.SYSTEM_ERROR:
                assert answer.remark, (code, name, number)


async def test_a_request_without_fields_or_body_is_refused(victim: Victim) -> None:
    for port in victim.ports:
        async with attacker(port) as peer:
            for code in sorted(RequestCode):
                for ext in (None, {}):
                    answer = await ask(peer, Command(code, ext))
                    assert answer.code == 0 or is_clear(answer), (code, answer)
                await peer.send(raw_frame(b'{"code":%d,"flag":0,"opaque":5,"extFields":null}' % code))
                assert (await peer.receive()).opaque == 5


# Bodies

BOMBS: dict[str, Callable[[], bytes]] = {
    "deep arrays": lambda: b"[" * 2_000_000,
    "deep objects": lambda: b'{"a":' * 800_000,
    "endless string": lambda: b'{"clientID":"' + b"x" * 4_000_000,
    "empty groups": lambda: b'{"clientID":"c","consumerDataSet":[' + b"{}," * 200_000 + b"{}]}",
    "consumer groups": lambda: _heartbeat_bomb("consumerDataSet"),
    "producer groups": lambda: _heartbeat_bomb("producerDataSet"),
    "many members": lambda: b'{"groupName":"g","attributes":{' + b",".join(b'"%d":"x"' % i for i in range(60_000)),
    "long integer": lambda: b'{"groupName":"g","retryMaxTimes":' + b"9" * 1_000_000 + b"}",
    "long exponent": lambda: b'{"clientID":"c","heartbeatFingerprint":1e' + b"9" * 100_000 + b"}",
    "many tags": lambda: b'{"subscriptionData":{"topic":"t","subString":"' + b"a||" * 1_000_000 + b'"}}',
    "objects as keys": lambda: b"{{{{" * 500_000,
    "comments": lambda: b"/*" * 1_000_000,
    "escapes": lambda: b'{"a":"\\u00' + b"\\" * 2_000_000,
    "zlib": lambda: zlib.compress(bytes(50_000_000)),
    "gzip": lambda: b"\x1f\x8b" + bytes(1000),
}


def _heartbeat_bomb(member: str) -> bytes:
    names = ",".join(f'{{"groupName":"bomb-{number}"}}' for number in range(100_000))
    return f'{{"clientID":"c","{member}":[{names}]}}'.encode()


@pytest.mark.parametrize("name", BOMBS)
async def test_a_body_made_to_blow_up_is_refused(victim: Victim, name: str) -> None:
    bomb = BOMBS[name]()
    with_body = {
        victim.broker_port: (RequestCode.HEART_BEAT, RequestCode.CHECK_CLIENT_CONFIG, 200, 41),
        victim.namesrv_port: (RequestCode.REGISTER_BROKER, RequestCode.UPDATE_NAMESRV_CONFIG, 217, 322),
    }
    for port, codes in with_body.items():
        async with attacker(port) as peer:
            for code in codes:
                # Only registrations may be compressed.
                for compressed in ("false", "true") if code == RequestCode.REGISTER_BROKER else ("false",):
                    ext = {**_base_ext(code), "compressed": compressed, "bodyCrc32": "0"}
                    answer = await ask(peer, Command(code, ext, bomb))
                    assert answer.code == 0 or is_clear(answer), answer
    assert not any(group.startswith("bomb-") for group in await _group_names(victim))


async def test_a_compressed_registration_that_inflates_without_end_is_refused(victim: Victim) -> None:
    packer = zlib.compressobj(9)
    bomb = b"".join(packer.compress(bytes(1 << 20)) for _ in range(300)) + packer.flush()
    assert len(bomb) < 1 << 20
    ext = {**_base_ext(RequestCode.REGISTER_BROKER), "compressed": "true", "bodyCrc32": "0"}
    async with attacker(victim.namesrv_port) as peer:
        answer = await ask(peer, Command(RequestCode.REGISTER_BROKER, ext, bomb))
        assert (answer.code, is_clear(answer)) == (ResponseCode.SYSTEM_ERROR, True)


INFLATED_MIB = 512
MOST_MIB = 64
"""Of memory that a reader may take for a bomb; 4 MiB are what it is let inflate."""
READER = """
import resource, sys
from rocketline.protocol.records import decode_messages
answer = sys.stdin.buffer.read()
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
(message,) = decode_messages(answer, 4 << 20)
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before, message.body_problem)
"""


def _inflating(kind: str) -> bytes:
    packer: Any = zlib.compressobj(9)
    start = b""
    if kind == "lz4":
        packer = lz4.frame.LZ4FrameCompressor(block_size=lz4.frame.BLOCKSIZE_MAX4MB)
        start = packer.begin()
    elif kind == "zstd":
        # A frame that asks its reader for as much memory as any may.
        packer = zstd.ZstdCompressor(options={zstd.CompressionParameter.window_log: 27})
    return start + b"".join(packer.compress(bytes(1 << 20)) for _ in range(INFLATED_MIB)) + packer.flush()


@pytest.mark.parametrize("kind", TYPES)
async def test_a_compressed_message_is_stored_as_it_is_and_bursts_in_no_hands(victim: Victim, kind: str) -> None:
    """A broker never inflates; a consumer inflates up to its limit and says so."""
    async with attacker(victim.broker_port) as peer:
        stored = await ask(peer, send(f"bombs-{kind}", _inflating(kind), sys_flag=TYPES[kind] | 1))
        assert stored.code == ResponseCode.SUCCESS
        answer = await ask(peer, pull(f"bombs-{kind}"))
        assert answer.code == ResponseCode.SUCCESS
    command = [sys.executable, "-c", READER]
    done = await asyncio.to_thread(
        subprocess.run, command, input=bytes(answer.body), capture_output=True, timeout=PATIENCE_S
    )
    grown_kib, _, problem = done.stdout.decode().partition(" ")
    assert "inflates to more than" in problem, done.stderr
    assert int(grown_kib) < MOST_MIB << 10


@pytest.mark.parametrize(
    "code", [RequestCode.SEND_MESSAGE, RequestCode.SEND_MESSAGE_V2, RequestCode.SEND_BATCH_MESSAGE]
)
async def test_a_body_over_4_mib_is_refused(victim: Victim, code: int) -> None:
    async with attacker(victim.broker_port) as peer:
        for size in ((4 << 20) + 1, 10 << 20):
            answer = await ask(peer, send("large", bytes(size), code=code))
            assert (answer.code, is_clear(answer)) == (ResponseCode.MESSAGE_ILLEGAL, True)
            batch = encode_batch([BatchItem(0, bytes(size // 2 + 1), b"")] * 2)
            answer = await ask(peer, send("large", batch, code=RequestCode.SEND_BATCH_MESSAGE, batch=True))
            assert (answer.code, is_clear(answer)) == (ResponseCode.MESSAGE_ILLEGAL, True)
        assert await read_all(peer, "large") == []


async def test_a_frame_over_16_mib_closes_the_connection(victim: Victim) -> None:
    assert await is_closed_on(victim.broker_port, frame_bytes(send("large", bytes(MAX_FRAME_BYTES)))) == b""


# Names

HOSTILE_NAMES = [
    "../../x", "..", ".", "/etc/passwd", "a/b", "a b", " ", "a\x00b", "a\nb", "~", "C:\\x", "x" * 128, "x" * 100_000, "é",
    "%RETRY%../../x", "%DLQ%../../x", "%RETRY%" + "x" * 300, "\ufeff", "a\u2028b",
]  # fmt: skip


async def test_no_request_takes_a_hostile_name_for_a_topic_or_group(victim: Victim) -> None:
    topics_before = await _topic_names(victim)
    async with attacker(victim.broker_port) as peer:
        for name in HOSTILE_NAMES:
            for code in (RequestCode.SEND_MESSAGE, RequestCode.SEND_MESSAGE_V2, RequestCode.SEND_BATCH_MESSAGE):
                for batch in (False, True):
                    answer = await ask(
                        peer, send(name, encode_batch([BatchItem(0, b"x", b"")]), code=code, batch=batch)
                    )
                    assert (answer.code, is_clear(answer)) == (ResponseCode.INVALID_PARAMETER, True), name
            for code in (17, 215, 351, 11, 361, 14, 15, 29, 30, 31, 32, 12):
                ext = {**_base_ext(code), "topic": name, "queueId": "0", "commitOffset": "1", "maxNum": "1"}
                answer = await ask(peer, Command(code, ext))
                assert answer.code != 0 or code == RequestCode.QUERY_CONSUMER_OFFSET, (code, name)
            if len(name) == 128:
                continue  # a group may have this one
            for code, field in ((11, "consumerGroup"), (36, "group"), (352, "group"), (15, "consumerGroup")):
                answer = await ask(peer, Command(code, {**_base_ext(code), field: name, "topic": KEPT}))
                assert answer.code != 0, (code, name)
            body = json.dumps({"groupName": name}).encode()
            answer = await ask(peer, Command(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, {}, body))
            assert answer.code == ResponseCode.INVALID_PARAMETER, name
            body = json.dumps({"clientID": "c", "consumerDataSet": [{"groupName": name}]}).encode()
            assert (await ask(peer, Command(RequestCode.HEART_BEAT, {}, body))).code == ResponseCode.SUCCESS
    assert await _topic_names(victim) == topics_before
    await victim.check()


async def _group_names(victim: Victim) -> set[str]:
    async with attacker(victim.broker_port) as peer:
        answer = await ask(peer, Command(RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG))
        return set(json.loads(answer.body)["subscriptionGroupTable"])


async def _topic_names(victim: Victim) -> set[str]:
    async with attacker(victim.broker_port) as peer:
        answer = await ask(peer, Command(RequestCode.GET_ALL_TOPIC_CONFIG))
        return set(json.loads(answer.body)["topicConfigTable"])


# Too much of what is allowed


async def test_more_held_pulls_than_a_connection_may_have_are_told_to_wait_and_all_are_forgotten(
    victim: Victim,
) -> None:
    async with attacker(victim.broker_port) as peer:
        end = int((await ask(peer, pull(KEPT, 1 << 40))).ext["nextBeginOffset"])  # type: ignore[index]
        await peer.send_commands(*(pull(KEPT, end, sys_flag=6) for _ in range(8192 + 5)))
        answers = await peer.receive_all(5)
        assert {answer.code for answer in answers} == {ResponseCode.SYSTEM_BUSY}
        assert all(map(is_clear, answers))
    await victim.check()


async def test_a_flood_of_requests_in_one_write_is_served_in_order(victim: Victim) -> None:
    async with attacker(victim.broker_port) as peer:
        flood = [send("flood", b"%d" % number) for number in range(3000)]
        for number, command in enumerate(flood):
            command.opaque = number
        writing = asyncio.ensure_future(peer.send_commands(*flood))
        answers = await peer.receive_all(3000)
        await writing
        assert [answer.opaque for answer in answers] == list(range(3000))
        assert [int((answer.ext or {})["queueOffset"]) for answer in answers] == list(range(3000))


async def test_a_delay_level_retry_count_or_flag_out_of_range_harms_nobody(victim: Victim) -> None:
    odd = [
        {"properties": "UNIQ_KEY\x01U\x02DELAY\x01" + level + "\x02"}
        for level in ("999999999999", "-5", "1.5", "x", "٣")
    ]
    odd += [{"reconsume_times": number} for number in (-1, 1 << 30)]
    odd += [{"sys_flag": number} for number in (-1, 0x7FFFFFFF, 0x30, 0xFFFF)]
    odd += [{"flag": -(1 << 31)}, {"born_ms": -(1 << 63)}, {"queue_id": -(1 << 31)}, {"queue_id": 1 << 30}]
    odd += [
        {"properties": text} for text in ("\x01\x02" * 1000, "\x02" * 5000, "a\x01" * 5000, "KEYS\x01" + "k " * 10_000)
    ]
    async with attacker(victim.broker_port) as peer:
        stored = 0
        for changes in odd:
            for topic in ("odd", "%RETRY%odd"):
                answer = await ask(peer, send(topic, b"odd", **changes))
                assert answer.code == 0 or is_clear(answer), (changes, answer)
                stored += answer.code == 0
        assert stored
    await victim.check()
