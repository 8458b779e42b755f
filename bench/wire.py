"""The RocketMQ calls of the harness itself: create a topic, read offsets, send one message.

Written independently of the product, so that a mistake in its codec is noticed here. One JSON frame out and one in, on a
connection of its own; nothing in this module is measured. All are signed, which servers without accounts do not look at.
"""

from __future__ import annotations

import hmac
import json
import socket
import struct
import time
from base64 import b64encode
from collections.abc import Generator, Iterable, Mapping, Sequence
from contextlib import closing
from typing import Any

FRAME_MAX = 16 << 20
CALL_TIMEOUT_S = 30.0
ROUTE_TIMEOUT_S = 60.0

ACCOUNT, SECRET = "bench", "secret-of-bench"
"""Of the harness, on servers that ask for accounts. It is a super user, whose rights no server looks up."""
SENDER, SENDER_SECRET = "bench-sender", "secret-of-bench-sender"
"""Of the load: an account whose rights are looked up for each send."""
CREATE_USER, CREATE_ACL = 3001, 3006
SEND_MESSAGE_V2 = 310
UPDATE_AND_CREATE_TOPIC_LIST = 18
GET_MAX_OFFSET = 30
GET_ROUTEINFO_BY_TOPIC = 105


class WireError(RuntimeError):
    """A server could not be reached or refused a call of the harness."""


def call(address: str, code: int, fields: Mapping[str, str], body: bytes = b"") -> tuple[dict[str, Any], bytes]:
    """One request to "host:port"; returns the answer's header and body, or raises unless its code is 0."""
    with closing(calls(address, code, [fields], body)) as answers:
        return next(answers)


def calls(
    address: str, code: int, requests: Iterable[Mapping[str, str]], body: bytes = b""
) -> Generator[tuple[dict[str, Any], bytes], None, None]:
    """The same request with other fields again and again, one after the other on one connection."""
    host, _, port = address.rpartition(":")
    try:
        with socket.create_connection((host, int(port)), timeout=CALL_TIMEOUT_S) as connection:
            for fields in requests:
                connection.sendall(_request(code, fields, body))
                answer, answer_body = _read_answer(connection)
                if answer.get("code") != 0:
                    raise WireError(f"{address} answered call {code} with {answer.get('code')}: {answer.get('remark')}")
                yield answer, answer_body
    except (OSError, ValueError) as error:
        raise WireError(f"call {code} to {address} failed: {error}") from error


def _request(code: int, fields: Mapping[str, str], body: bytes) -> bytes:
    fields = {**fields, "AccessKey": ACCOUNT}
    content = "".join(fields[name] for name in sorted(fields)).encode() + body
    fields["Signature"] = b64encode(hmac.digest(SECRET.encode(), content, "sha1")).decode()
    header = {"code": code, "extFields": fields, "flag": 0, "language": "JAVA", "opaque": 1, "version": 493}
    text = json.dumps(header, separators=(",", ":")).encode()
    return struct.pack(">II", 4 + len(text) + len(body), len(text)) + text + body


def create_sender(broker: str) -> None:
    """Create the account of the load, with the right to send to every topic."""
    user = {"username": SENDER, "password": SENDER_SECRET, "userType": "Normal"}
    call(broker, CREATE_USER, {"username": SENDER}, json.dumps(user).encode())
    entry = {"resource": "Topic:*", "actions": ["Pub"], "sourceIps": [], "decision": "Allow"}
    rights = {"subject": f"User:{SENDER}", "policies": [{"policyType": "Custom", "entries": [entry]}]}
    call(broker, CREATE_ACL, {"subject": f"User:{SENDER}"}, json.dumps(rights).encode())


def create_topic(namesrv: str, broker: str, topic: str, queues: int) -> None:
    """Create the topic on the broker and wait until the name server routes it."""
    create_topics(namesrv, broker, [topic], queues)


def create_topics(namesrv: str, broker: str, topics: Sequence[str], queues: int) -> None:
    """Create topics with one request: with one for each, a broker may register again each time."""
    config = {"readQueueNums": queues, "writeQueueNums": queues, "perm": 6, "topicFilterType": "SINGLE_TAG"}
    config |= {"topicSysFlag": 0, "order": False, "attributes": {}}
    wanted = {"topicConfigList": [{"topicName": topic, **config} for topic in topics]}
    call(broker, UPDATE_AND_CREATE_TOPIC_LIST, {}, json.dumps(wanted).encode())
    await_route(namesrv, topics[-1])


def await_route(namesrv: str, topic: str) -> None:
    """Wait until the name server routes the topic: a server that was frozen for long has to register again."""
    deadline = time.monotonic() + ROUTE_TIMEOUT_S
    while True:
        try:
            call(namesrv, GET_ROUTEINFO_BY_TOPIC, {"topic": topic, "acceptStandardJsonOnly": "true"})
            return
        except WireError as error:
            if time.monotonic() > deadline:
                raise WireError(f"no route for {topic} within {ROUTE_TIMEOUT_S:.0f} s: {error}") from error
        time.sleep(0.05)


def max_offsets(broker: str, topics: Sequence[str], queues: int) -> list[int]:
    """The end offsets of all queues of the topics."""
    asked = ({"topic": topic, "queueId": str(queue)} for topic in topics for queue in range(queues))
    return [int(answer["extFields"]["offset"]) for answer, _ in calls(broker, GET_MAX_OFFSET, asked)]


def stored_messages(broker: str, topic: str, queues: int) -> int:
    """The sum of the topic's max offsets: what the broker would let consumers read."""
    return sum(max_offsets(broker, [topic], queues))


def send_one(broker: str, broker_name: str, topic: str) -> None:
    """One acknowledged send, auto-creating the topic; raises WireError while the broker does not serve."""
    fields = {"a": "bench_start", "b": topic, "c": "TBW102", "d": "4", "e": "0", "f": "0"}
    fields |= {"g": str(int(time.time() * 1000)), "h": "0", "i": "WAIT\x01true\x02", "j": "0"}
    fields |= {"k": "false", "m": "false", "n": broker_name}
    call(broker, SEND_MESSAGE_V2, fields, b"first")


def _read_answer(connection: socket.socket) -> tuple[dict[str, Any], bytes]:
    (length,) = struct.unpack(">I", _read_exactly(connection, 4))
    if not 4 <= length <= FRAME_MAX:
        raise ValueError(f"a frame of {length} bytes")
    frame = _read_exactly(connection, length)
    header_bytes = int.from_bytes(frame[:4], "big")
    if header_bytes >> 24:
        raise ValueError("the answer to a JSON request is not JSON")
    header = json.loads(frame[4 : 4 + header_bytes])
    if not isinstance(header, dict):
        raise ValueError("the answer's header is not an object")
    return header, frame[4 + header_bytes :]


def _read_exactly(connection: socket.socket, size: int) -> bytes:
    parts = bytearray()
    while len(parts) < size:
        part = connection.recv(size - len(parts))
        if not part:
            raise ValueError("the server closed the connection")
        parts += part
    return bytes(parts)
