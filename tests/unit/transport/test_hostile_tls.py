"""What TLS lets a peer do after the handshake: change keys all the time, and ask for another handshake."""

from __future__ import annotations

import asyncio
import hashlib
import shutil
import ssl
import struct
from collections.abc import Iterator
from contextlib import suppress
from itertools import islice
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA384
from cryptography.hazmat.primitives.kdf.hkdf import HKDFExpand
from tests.support.patience import PATIENCE_S
from tests.support.tls import CA_FILE, TLS_DATA
from tests.unit.transport.peers import ECHO, Scripted, serving

from rocketline.protocol.command import Command
from rocketline.transport import Limits, RemotingClient
from rocketline.transport.access import Access
from rocketline.transport.server_config import TlsConfig
from rocketline.transport.server_tls import ServerTls
from rocketline.transport.tls import Tls

AT_ONCE = 1000
SUITE = "TLS_AES_256_GCM_SHA384"
KEY_UPDATE = b"\x18\x00\x00\x01\x01\x16"
"""A message that changes the sender's key and asks for a new one of the other side, and that it is a handshake message."""


def enforcing() -> ServerTls | None:
    files = {"cert_path": str(TLS_DATA / "server.pem"), "key_path": str(TLS_DATA / "server.key")}
    return ServerTls.of(TlsConfig(mode="enforcing", **files), "127.0.0.1")


def expanded(secret: bytes, label: str, size: int) -> bytes:
    """HKDF-Expand-Label of RFC 8446, without a context."""
    name = f"tls13 {label}".encode()
    info = struct.pack(">HB", size, len(name)) + name + b"\0"
    return HKDFExpand(SHA384(), size, info).derive(secret)


def key_updates(secret: bytes) -> Iterator[bytes]:
    """Records without end: each is the first one under the key that the one before has made."""
    head = b"\x17\x03\x03" + struct.pack(">H", len(KEY_UPDATE) + 16)
    while True:
        key, nonce = expanded(secret, "key", 32), expanded(secret, "iv", 12)
        yield head + AESGCM(key).encrypt(nonce, KEY_UPDATE, head)
        secret = expanded(secret, "traffic upd", hashlib.sha384().digest_size)


def secret_of(key_log: Path) -> bytes:
    """With which the client encrypts after the handshake."""
    lines = [line.split() for line in key_log.read_text().splitlines()]
    return bytes.fromhex(next(line[2] for line in lines if line[0] == "CLIENT_TRAFFIC_SECRET_0"))


async def shaken(port: int, key_log: Path) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """A connection on which a TLS handshake is done, and whose bytes are ours to write."""
    context = ssl.create_default_context(cafile=CA_FILE)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.keylog_filename = str(key_log)
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    tls = context.wrap_bio(incoming, outgoing, server_hostname="localhost")
    while True:
        try:
            tls.do_handshake()
            break
        except ssl.SSLWantReadError:
            writer.write(outgoing.read())
            incoming.write(await reader.read(1 << 16))
    writer.write(outgoing.read())
    found = tls.cipher()
    assert found is not None
    assert found[0] == SUITE
    return reader, writer


async def test_a_flood_of_key_updates_starves_nobody_and_is_no_sign_of_life(tmp_path: Path) -> None:
    """OpenSSL answers each of them, with a record that is smaller. Who does not read those is not served further, as
    with all answers (`test_channel.py`)."""
    limits = Limits(idle_s=1.5)
    async with serving(Scripted().router, limits, tls=enforcing()) as server, asyncio.timeout(PATIENCE_S):
        reader, writer = await shaken(server.port, tmp_path / "keys")
        try:
            updates = key_updates(secret_of(tmp_path / "keys"))
            while not writer.is_closing():  # until the server finds that this peer is idle
                writer.write(b"".join(islice(updates, AT_ONCE)))
                async with RemotingClient(access=Access(tls=Tls(ca_file=CA_FILE))) as other:
                    assert (await other.call(f"127.0.0.1:{server.port}", Command(ECHO), PATIENCE_S)).code == 0
                with suppress(ConnectionError, TimeoutError):
                    await asyncio.wait_for(reader.read(1 << 20), 0.01)
                    if reader.at_eof():
                        break
        finally:
            writer.transport.abort()


@pytest.mark.skipif(shutil.which("openssl") is None, reason="only the program openssl asks for another handshake")
async def test_another_handshake_on_a_connection_is_refused() -> None:
    """TLS 1.2 has that; in a loop it costs a server a hundred times what it costs the peer."""
    scripted = Scripted()
    async with serving(scripted.router, tls=enforcing()) as server, asyncio.timeout(PATIENCE_S):
        options = ["s_client", "-connect", f"127.0.0.1:{server.port}", "-tls1_2", "-CAfile", str(CA_FILE)]
        pipes = dict.fromkeys(("stdin", "stdout", "stderr"), asyncio.subprocess.PIPE)
        peer = await asyncio.create_subprocess_exec("openssl", *options, **pipes)
        assert peer.stdin is not None
        assert peer.stdout is not None
        seen = await peer.stdout.readuntil(b"Verify return code: 0")
        assert b"TLSv1.2" in seen
        peer.stdin.write(b"R\n")
        _, told = await peer.communicate()
        assert b"RENEGOTIATING" in told
        assert b"no renegotiation" in told
        async with RemotingClient(access=Access(tls=Tls(ca_file=CA_FILE))) as other:
            assert (await other.call(f"127.0.0.1:{server.port}", Command(ECHO), PATIENCE_S)).code == 0
    assert len(scripted.served) == 1
