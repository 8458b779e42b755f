"""S19: a flood of connections, more than a broker takes. Who is connected is served all the time, and who comes afterwards.

Those of the flood say nothing, or begin a TLS handshake that they never end. They stay until the broker closes
them, or until all are there.
"""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from pathlib import Path
from random import Random

from tests.support.patience import PATIENCE_S
from tests.support.tls import TLS_DATA

from rocketline.errors import TransportError
from rocketline.protocol.codes import RequestCode
from rocketline.protocol.command import Command
from rocketline.transport import RemotingClient

from ..child import BrokerChild
from ..outcome import Outcome
from ..plan import ASYNC, plan_for

SILENT, HANDSHAKES = "silent", "handshakes"
VARIANTS = (SILENT, HANDSHAKES)
PEERS, LIMIT = 20_000, 10_000
AT_ONCE = 100
HALF_HELLO = b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"
TLS = {"tls.server.mode": "permissive", "tls.server.certPath": str(TLS_DATA / "server.pem")}
TLS |= {"tls.server.keyPath": str(TLS_DATA / "server.key")}


async def run(
    folder: Path, seed: int, variant: str = SILENT, runs: int = 1, peers: int = PEERS, limit: int = LIMIT
) -> Outcome:
    outcome = Outcome("S19", variant, seed)
    random = Random(seed)
    for number in range(runs):
        broker = BrokerChild(plan_for(folder / str(number), ASYNC, TLS, {"rocketline.maxConnections": str(limit)}))
        await broker.start()
        try:
            await _flooded(outcome, broker.address, variant, random, peers, limit)
        finally:
            broker.kill()
        outcome.runs += 1
    return outcome


async def _flooded(outcome: Outcome, address: str, variant: str, random: Random, peers: int, limit: int) -> None:
    host, _, port = address.rpartition(":")
    held: dict[asyncio.Task[None], asyncio.StreamWriter] = {}

    async def come() -> None:
        with suppress(OSError):  # the broker may end it in any step
            reader, writer = await asyncio.open_connection(host, int(port))
            if variant == HANDSHAKES:
                writer.write(HALF_HELLO[: random.randrange(1, len(HALF_HELLO))])
            task = asyncio.create_task(_stay(reader, writer))
            held[task] = writer
            task.add_done_callback(held.pop)

    async with RemotingClient() as loyal:
        await _ask(loyal, address)
        for _ in range(peers // AT_ONCE):
            await asyncio.gather(*(come() for _ in range(AT_ONCE)))
            await _ask(loyal, address)
            outcome.require(
                len(held) <= limit + AT_ONCE, f"S19: {len(held)} connections are open, the limit is {limit}"
            )
        outcome.note("connections at the end", len(held))
        staying = list(held.items())
        for _, writer in staying:
            writer.transport.abort()
        if staying:
            await asyncio.wait([task for task, _ in staying])
        began = time.monotonic()
        await _served_again(address)
        outcome.note("seconds until served again", time.monotonic() - began)
        await _ask(loyal, address)


async def _stay(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(OSError):
        await reader.read()
    writer.transport.abort()


async def _ask(client: RemotingClient, address: str) -> None:
    answer = await client.call(address, Command(RequestCode.GET_BROKER_RUNTIME_INFO), PATIENCE_S)
    assert answer.code == 0, answer


async def _served_again(address: str) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while True:
            try:
                async with RemotingClient() as newcomer:
                    return await _ask(newcomer, address)
            except TransportError:
                await asyncio.sleep(0.01)  # the broker has not seen the end of the flood yet
