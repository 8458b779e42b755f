"""Servers that take TLS, with the certificates of tests/data/tls: made for 127.0.0.1 and localhost by `make.sh` there."""

from __future__ import annotations

import asyncio
import hmac
import ssl
from base64 import b64encode
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

from rocketline.protocol.command import Command

TLS_DATA = Path(__file__).parent.parent / "data" / "tls"
CA_FILE = TLS_DATA / "ca.pem"
CLIENT_CERTIFICATE: dict[str, Any] = {
    "certificate": TLS_DATA / "client.pem",
    "key": TLS_DATA / "client.key",
    "key_password": "rocketline",
}


def server_context(name: str = "server", *, asks_clients: bool = False) -> ssl.SSLContext:
    """`server` is for this machine, `elsewhere` for another; `asks_clients` for a certificate of theirs."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(TLS_DATA / f"{name}.pem", TLS_DATA / f"{name}.key")
    if asks_clients:
        context.verify_mode = ssl.CERT_REQUIRED
        context.load_verify_locations(CA_FILE)
    return context


@asynccontextmanager
async def tls_front(address: str, context: ssl.SSLContext | None = None) -> AsyncIterator[str]:
    """An address that takes only TLS and passes everything on to a plain server."""
    host, _, port = address.rpartition(":")
    tasks: set[asyncio.Task[None]] = set()
    writers: list[asyncio.StreamWriter] = []

    async def passed_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            while data := await reader.read(1 << 16):
                writer.write(data)
                await writer.drain()
        writer.close()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        behind_reader, behind_writer = await asyncio.open_connection(host, int(port))
        writers.extend((writer, behind_writer))
        for work in (passed_on(reader, behind_writer), passed_on(behind_reader, writer)):
            task = asyncio.create_task(work)
            tasks.add(task)
            task.add_done_callback(tasks.discard)

    server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=context or server_context())
    try:
        yield f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        server.close()
        for task in list(tasks):
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for writer in writers:
            writer.transport.abort()
        await asyncio.gather(*(writer.wait_closed() for writer in writers), return_exceptions=True)


def is_signed_by(request: Command, access_key: str, secret_key: str) -> bool:
    """Whether a server that has this account would let a request pass; for names of ASCII."""
    fields = dict(request.ext or {})
    signature = fields.pop("Signature", "")
    content = "".join(value for _, value in sorted(fields.items())).encode() + request.body
    wanted = b64encode(hmac.new(secret_key.encode(), content, "sha1").digest()).decode()
    return fields.get("AccessKey") == access_key and hmac.compare_digest(signature, wanted)
