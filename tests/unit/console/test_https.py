"""A console with a certificate of its own: browsers get nothing else, and a changed certificate at once."""

from __future__ import annotations

import asyncio
import logging
import ssl
from pathlib import Path

import pytest
from tests.support.patience import PATIENCE_S

from rocketline.console import serve
from rocketline.console.config import ClusterPlace, ConsoleConfig
from rocketline.console.serve import Console
from rocketline.errors import ConfigError
from rocketline.transport.certificates import LOCAL_NAMES, Authority

NOBODY = (ClusterPlace("default", "127.0.0.1:1"),)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    Authority.make("tests", 1).pair.save(tmp_path / "ca.pem", tmp_path / "ca.key")
    renew(tmp_path)
    return tmp_path


def renew(folder: Path) -> None:
    authority = Authority.load(folder / "ca.pem", folder / "ca.key")
    authority.server(LOCAL_NAMES, 1).save(folder / "console.pem", folder / "console.key")


def console(folder: Path) -> Console:
    return Console(ConsoleConfig(NOBODY, port=0, certificate=folder / "console.pem", key=folder / "console.key"))


async def shown(port: int, folder: Path, version: ssl.TLSVersion = ssl.TLSVersion.TLSv1_3) -> bytes | None:
    """The certificate that a browser gets that trusts the authority."""
    context = ssl.create_default_context(cafile=folder / "ca.pem")
    context.maximum_version = version
    reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context)
    writer.write(b"GET /login HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n")
    assert (await reader.readline()).startswith(b"HTTP/1.1 ")
    found: bytes | None = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
    writer.transport.abort()
    return found


async def test_a_changed_certificate_is_for_new_connections(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serve, "RELOAD_S", 0.05)
    async with console(folder) as running, asyncio.timeout(PATIENCE_S):
        assert running.url.startswith("https://")
        before = await shown(running.port, folder)
        renew(folder)
        while await shown(running.port, folder) == before:
            await asyncio.sleep(0.01)
        await shown(running.port, folder, ssl.TLSVersion.TLSv1_2)


async def test_who_comes_without_tls_gets_nothing(folder: Path) -> None:
    async with console(folder) as running, asyncio.timeout(PATIENCE_S):
        reader, writer = await asyncio.open_connection("127.0.0.1", running.port)
        writer.write(b"GET /login HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
        assert b"HTTP" not in await reader.read()
        writer.transport.abort()


async def test_a_certificate_that_cannot_be_used_is_named(folder: Path) -> None:
    (folder / "console.key").write_text("no key")
    with pytest.raises(ConfigError, match=r"^--cert and --key: .*console\.pem.*console\.key cannot be used"):
        async with console(folder):
            pass


async def test_passwords_in_plain_text_are_warned_about(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    def warned(config: ConsoleConfig) -> bool:
        caplog.clear()
        Console(config)
        return "passwords" in caplog.text

    caplog.set_level(logging.WARNING)
    users = tmp_path / "users.json"
    assert warned(ConsoleConfig(NOBODY, host="0.0.0.0", users=users))
    assert not warned(ConsoleConfig(NOBODY, users=users))
    assert not warned(ConsoleConfig(NOBODY, host="0.0.0.0", users=users, behind_proxy=True))
