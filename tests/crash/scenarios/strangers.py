"""S11: hostile bytes at the HA port. No acknowledgement is released, and nobody who proved nothing gets a byte of the log.

The broker waits for a replica before it acknowledges a send, and none of those who come is one. They greet with proofs that
they made up, say that they have the whole log, or more of it than there is, and send cut and changed bytes.
"""

from __future__ import annotations

import asyncio
import json
import struct
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from random import Random

from tests.support.access.world import send_fields
from tests.support.etcd import free_ports
from tests.support.patience import PATIENCE_S

from rocketline.protocol.codes import RequestCode
from rocketline.protocol.command import Command
from rocketline.protocol.replication_frames import PROOF_BYTES, encode_hello
from rocketline.transport import RemotingClient

from ..child import BrokerChild
from ..outcome import Outcome
from ..plan import ASYNC, plan_for

REFUSED, SERVED = "refuse", "serve"
VARIANTS = (REFUSED, SERVED)
"""What becomes of those who do not say who they are: in both, what they report counts for nothing."""
AT_ONCE = 40
WAITS = {"brokerRole": "SYNC_MASTER", "inSyncReplicas": "2", "slaveTimeout": "5"}
BODY = b"only for replicas"
_REPORT = struct.Struct(">Q")


async def run(
    folder: Path, seed: int, variant: str = REFUSED, runs: int = 1000, mistakes: Mapping[str, str] | None = None
) -> Outcome:
    """`runs` connections; `mistakes` are settings with which something must be found."""
    outcome = Outcome("S11", variant, seed)
    (port,) = free_ports(1)
    settings = WAITS | {"rocketline.haStrangers": variant, "haListenPort": str(port)} | dict(mistakes or {})
    broker = BrokerChild(plan_for(folder / "0", ASYNC, settings))
    await broker.start()
    try:
        async with RemotingClient() as loyal:
            random = Random(seed)
            end = await _send(outcome, loyal, broker.address)
            while outcome.runs < runs:
                end = await _attacked(outcome, loyal, broker.address, port, random, end)
    finally:
        broker.kill()
    return outcome


async def _attacked(outcome: Outcome, loyal: RemotingClient, address: str, port: int, random: Random, end: int) -> int:
    """Peers come, a send is made while they are there, and they leave; returns where the log ends then."""
    peers = [await asyncio.open_connection("127.0.0.1", port) for _ in range(AT_ONCE)]
    outcome.runs += len(peers)
    for _, writer in peers[::2]:
        writer.write(_hostile(random, end))
    now = await _send(outcome, loyal, address)
    sending = asyncio.create_task(_send(outcome, loyal, address))
    for _, writer in peers[1::2]:
        writer.write(_REPORT.pack(2 * now - end))  # where the log ends once this send is in it
        if sending.done():
            break
        await asyncio.sleep(0.005)
    end = await sending
    for reader, writer in peers:
        told = await _received(reader, writer)
        outcome.require(outcome.variant == SERVED or not told, f"S11: a stranger got {len(told)} bytes: {told[:60]!r}")
    return end


def _hostile(random: Random, end: int) -> bytes:
    """Bytes that a replica might send, or nearly."""
    hello = encode_hello(random.randrange(3), random.randbytes(PROOF_BYTES))
    report = _REPORT.pack(random.choice([0, end, end, end + 1, end * 2, 1 << 50, random.getrandbits(64)]))
    sent = bytearray(
        random.choice([hello, report, hello + report, report * 3, random.randbytes(random.randrange(1, 200))])
    )
    for _ in range(random.choice([0, 0, 0, 1, 3])):
        sent[random.randrange(len(sent))] = random.randrange(256)
    return bytes(sent[: random.choice([len(sent), len(sent), random.randrange(1, len(sent) + 1)])])


async def _received(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bytes:
    """What came until now."""
    found = b""
    with suppress(ConnectionError, TimeoutError):
        found = await asyncio.wait_for(reader.read(1 << 16), 0.001)
    writer.transport.abort()
    return found


async def _send(outcome: Outcome, loyal: RemotingClient, address: str) -> int:
    """A send that must not be acknowledged, because no replica has it; returns where the log ends then."""
    request = Command(RequestCode.SEND_MESSAGE_V2, send_fields("watched"), BODY)
    answer = await loyal.call(address, request, PATIENCE_S)
    outcome.require(answer.code != 0, "S11: a send was acknowledged that no replica has")
    info = await loyal.call(address, Command(RequestCode.GET_BROKER_RUNTIME_INFO), PATIENCE_S)
    return int(json.loads(info.body)["table"]["commitLogMaxOffset"])
