"""`rocketline certs`: what it makes, and what it never touches; the flags of servers that use it."""

from __future__ import annotations

import re
import ssl
from pathlib import Path

import pytest

from rocketline.cli.main import main
from rocketline.cli.servers.flags import parser_of, read_flags


@pytest.mark.parametrize(
    ("flags", "settings"),
    [
        ([], {}),
        (
            ["--tls-cert", "a.pem", "--tls-key", "a.key"],
            {"tls.server.certPath": "a.pem", "tls.server.keyPath": "a.key"},
        ),
        (
            ["--tls-ca", "ca.pem", "--tls-client-auth", "optional"],
            {
                "tls.server.trustCertPath": "ca.pem",
                "tls.client.trustCertPath": "ca.pem",
                "tls.server.need.client.auth": "optional",
                "tls.server.authClient": "true",
            },
        ),
    ],
)
@pytest.mark.parametrize("server", ["up", "nameserver", "broker"])
def test_the_flags_of_servers(server: str, flags: list[str], settings: dict[str, str]) -> None:
    assert read_flags(parser_of(server), flags)[0].tls == settings


def is_pair(folder: Path, name: str) -> bool:
    ssl.create_default_context().load_cert_chain(folder / f"{name}.pem", folder / f"{name}.key")
    return True


def test_makes_an_authority_a_server_and_clients(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "certs"
    assert main(["certs", str(folder), "--host", "broker.example", "--host", "10.0.0.7", "--client", "alice"]) == 0
    said = capsys.readouterr().out
    assert {path.name for path in folder.iterdir()} == {
        "ca.pem", "ca.key", "server.pem", "server.key", "alice.pem", "alice.key",
    }  # fmt: skip
    assert [path.stat().st_mode & 0o777 for path in sorted(folder.glob("*.key"))] == [0o600] * 3
    assert is_pair(folder, "server")
    assert is_pair(folder, "alice")
    assert "localhost, 127.0.0.1, ::1, broker.example, 10.0.0.7, 365 days" in said
    assert f"--tls-cert {folder / 'server.pem'} --tls-key {folder / 'server.key'} --tls-ca {folder / 'ca.pem'}" in said


def test_keeps_the_authority_it_finds(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["certs", str(tmp_path)]) == 0
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    assert main(["certs", str(tmp_path), "--days", "3"]) == 0
    after = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    assert {name for name in before if before[name] == after[name]} == {"ca.pem", "ca.key"}
    assert "the authority, as it was" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("left", "arguments", "code", "problem"),
    [
        ("ca.key", [], 1, "ca.key cannot be used"),
        ("ca.pem", [], 1, "ca.pem and .*cannot be used"),
        ("", ["--client", "../alice"], 2, "--client ../alice: letters"),
        ("", ["--client", "ca"], 2, "not ca or server"),
        ("", ["--host", "bröker"], 1, "'bröker' cannot be in a certificate"),
        ("", ["--days", "0"], 2, "--days"),
    ],
)
def test_refuses(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    left: str,
    arguments: list[str],
    code: int,
    problem: str,
) -> None:
    if left:
        (tmp_path / left).write_text("something of value")
    assert main(["certs", str(tmp_path), *arguments]) == code
    said = capsys.readouterr().err
    assert re.search(problem, said), said
    if left:
        assert (tmp_path / left).read_text() == "something of value"
