"""Measures what accounts cost a broker that gives out messages: `python bench/signed_pulls.py` (see bench/README.md).

Two of our brokers, one with accounts and one without, hold the same messages and answer the same pulls in turns: the load is
made once, as bytes, and signed by an account that has the rights. What counts is the broker's processor time per pull, as
medians over many runs. `--apache` measures Apache's broker instead. `--quick` runs everything with tiny sizes.
"""

from __future__ import annotations

import argparse
import hmac
import json
import os
import signal
import socket
import statistics
import struct
import sys
import tempfile
import time
from base64 import b64encode
from pathlib import Path
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from bench import machine, wire
from bench.compare import OURS_COMMAND
from bench.generators import LoadFailed
from bench.sides import ApacheSide, CommandSide, Side, SideFailed
from bench.wire import WireError

SERVER_CORE, LOAD_CORE = 0, 1
TOPIC, GROUP = "bench-signed-pulls", "bench-pullers"
STORED, BODY = 512, b"x" * 128
LITE_PULL, CREATE_GROUP, CREATE_ACL = 361, 200, 3006
IN_FLIGHT = 32
MESSAGES = {"1 message": 1, "32 messages": 32}


class Cost(NamedTuple):
    cpu_us: float
    rate: float


def fill(side: Side) -> None:
    """The same messages, and an account that may read them."""
    wire.create_topic(side.namesrv, side.broker, TOPIC, 1)
    group = {"groupName": GROUP, "consumeEnable": True, "consumeFromMinEnable": True, "retryQueueNums": 1}
    wire.call(side.broker, CREATE_GROUP, {}, json.dumps(group).encode())
    if side.accounts:
        entry = {"actions": ["Sub"], "sourceIps": [], "decision": "Allow"}
        entries = [{"resource": name, **entry} for name in (f"Topic:{TOPIC}", f"Group:{GROUP}")]
        rights = {"subject": f"User:{wire.SENDER}", "policies": [{"policyType": "Custom", "entries": entries}]}
        wire.call(side.broker, CREATE_ACL, {"subject": f"User:{wire.SENDER}"}, json.dumps(rights).encode())
    fields = {"a": "bench", "b": TOPIC, "c": "TBW102", "d": "4", "e": "0", "f": "0", "h": "0", "i": "", "j": "0"}
    fields |= {"g": str(int(time.time() * 1000)), "k": "false", "m": "false", "n": side.broker_name}
    for _ in wire.calls(side.broker, wire.SEND_MESSAGE_V2, [fields] * STORED, BODY):
        pass
    deadline = time.monotonic() + wire.ROUTE_TIMEOUT_S
    while wire.stored_messages(side.broker, TOPIC, 1) < STORED:
        if time.monotonic() > deadline:
            raise LoadFailed(f"{side.label} does not list what it acknowledged")
        time.sleep(0.05)


def pulls(most: int) -> bytes:
    """Signed requests, as a consumer in the middle of its queue sends them; who asks for no accounts does not look."""
    frames = []
    for number in range(IN_FLIGHT):
        fields = {
            "AccessKey": wire.SENDER, "consumerGroup": GROUP, "topic": TOPIC, "queueId": "0", "maxMsgNums": str(most),
            "queueOffset": str(number * 8), "sysFlag": "4", "commitOffset": "0", "suspendTimeoutMillis": "0",
            "subVersion": "0", "subscription": "*", "expressionType": "TAG",
        }  # fmt: skip
        content = "".join(fields[name] for name in sorted(fields)).encode()
        fields["Signature"] = b64encode(hmac.digest(wire.SENDER_SECRET.encode(), content, "sha1")).decode()
        header = {
            "code": LITE_PULL,
            "extFields": fields,
            "flag": 0,
            "language": "JAVA",
            "opaque": number,
            "version": 493,
        }
        text = json.dumps(header, separators=(",", ":")).encode()
        frames.append(struct.pack(">II", 4 + len(text), len(text)) + text)
    return b"".join(frames)


def run(side: Side, connection: socket.socket, requests: bytes, seconds: float) -> Cost:
    """Send the requests and read their answers, again and again."""
    before, began, rounds = machine.cpu_seconds(side.pids()), time.monotonic(), 0
    answer_bytes = 0
    while time.monotonic() - began < seconds:
        connection.sendall(requests)
        # All rounds get the same answers: after the first only their length is looked at.
        if not answer_bytes:
            answer_bytes = sum(_read_answer(connection) for _ in range(IN_FLIGHT))
        else:
            _read(connection, answer_bytes)
        rounds += 1
    done = rounds * IN_FLIGHT
    cpu_s = machine.cpu_seconds(side.pids()) - before
    return Cost(cpu_s / done * 1e6, done / (time.monotonic() - began))


def _read_answer(connection: socket.socket) -> int:
    (length,) = struct.unpack(">I", _read(connection, 4))
    frame = _read(connection, length)
    header = json.loads(frame[4 : 4 + int.from_bytes(frame[1:4], "big")])
    if header["code"] != 0:
        raise LoadFailed(f"a pull was answered with {header['code']}: {header.get('remark')}")
    return 4 + length


def _read(connection: socket.socket, size: int) -> bytes:
    data = bytearray()
    while len(data) < size:
        if not (part := connection.recv(min(size - len(data), 1 << 20))):
            raise LoadFailed("the broker closed the connection")
        data += part
    return bytes(data)


def measure(sides: tuple[Side, Side], pairs: int, seconds: float) -> dict[str, dict[str, float]]:
    """The first side is the one without accounts."""
    connections = [
        socket.create_connection((host, int(port))) for host, _, port in (s.broker.rpartition(":") for s in sides)
    ]
    results = {}
    for name, most in MESSAGES.items():
        requests, found = pulls(most), []
        for turn in range(pairs + 1):
            order = (0, 1) if turn % 2 else (1, 0)
            costs = {which: run(sides[which], connections[which], requests, seconds) for which in order}
            found.append((costs[0], costs[1]))
        found = found[1:]  # the first pair warms up
        ratios = sorted(asked.cpu_us / free.cpu_us for free, asked in found)
        free_us, asked_us = (statistics.median(pair[which].cpu_us for pair in found) for which in (0, 1))
        ratio = statistics.median(ratios)
        results[name] = {
            "without_us": free_us,
            "with_us": asked_us,
            "ratio": ratio,
            "low": ratios[0],
            "high": ratios[-1],
        }
        print(
            f"{name:<12} broker CPU per pull {free_us:.2f} us without accounts, {asked_us:.2f} us with: {ratio:.2f} "
            f"({ratios[0]:.2f}-{ratios[-1]:.2f}, {len(found)} pairs)",
            flush=True,
        )
    for connection in connections:
        connection.close()
    return results


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, help="runs of each kind of pull, with and without accounts (5)")
    parser.add_argument("--seconds", type=float, help="length of a run (4)")
    parser.add_argument("--apache", action="store_true", help="Apache's broker instead of ours")
    parser.add_argument("--quick", action="store_true", help="tiny")
    parser.add_argument("--json", type=Path, metavar="OUT", help="also write the figures to this file")
    args = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that the servers are stopped
    os.sched_setaffinity(0, {LOAD_CORE})
    pairs, seconds = args.pairs or (1 if args.quick else 5), args.seconds or (0.3 if args.quick else 4.0)
    with tempfile.TemporaryDirectory(prefix="rocketline-bench-") as scratch:
        sides = tuple(_side(args, has_accounts) for has_accounts in (False, True))
        try:
            for side in sides:
                side.start(Path(scratch) / side.label)
                fill(side)
            results = measure((sides[0], sides[1]), pairs, seconds)
        except (SideFailed, LoadFailed, WireError) as error:
            print(error, file=sys.stderr)
            return 1
        finally:
            for side in sides:
                side.stop()
    if args.json:
        args.json.parent.mkdir(parents=True, exist_ok=True)
        args.json.write_text(json.dumps(results, indent=1) + "\n")
    return 0


def _side(args: argparse.Namespace, has_accounts: bool) -> Side:
    label = "accounts" if has_accounts else "none"
    if args.apache:
        return ApacheSide(label, SERVER_CORE, heap_mb=1024, quick=args.quick, accounts=has_accounts)
    return CommandSide(label, SERVER_CORE, OURS_COMMAND, accounts=has_accounts)


if __name__ == "__main__":
    raise SystemExit(main())
