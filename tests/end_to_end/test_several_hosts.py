"""The example of several hosts in docs/howto/secure.md, followed on addresses of this machine."""

from __future__ import annotations

import os
import re
import shlex
import socket
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import pytest
from tests.support.documents import first_lines
from tests.support.patience import PATIENCE_S

from rocketline.cli.contexts import CONFIG_VARIABLE
from rocketline.client import ClientOptions, CredentialsFile, Tls, blocking
from rocketline.errors import RocketlineError
from rocketline.message import Message

PAGE = Path(__file__).parents[2] / "docs/howto/secure.md"
USERS = """
users:
  shop:
    password: the shop's secret
    rights:
    - allow: Pub,Create on Topic:orders
"""


def section() -> list[str]:
    """The blocks of the example, at addresses and ports that are free here."""
    text = PAGE.read_text("utf-8").partition("\n## Several hosts\n")[2].partition("\n## ")[0]
    text = text.replace("10.0.0.", "127.0.0.").replace("127.0.0.1:9876", f"127.0.0.1:{free_port()}")
    (names_port,) = set(re.findall(r"127\.0\.0\.1:(\d+)", text))
    text = text.replace("--port 9876", f"--port {names_port}").replace("--port 10911", "--port 0")
    return re.findall(r"^```\n(.*?)^```", text, flags=re.DOTALL | re.MULTILINE)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.mark.skipif(sys.platform != "linux", reason="other systems have no 127.0.0.2")
def test_the_example_of_several_hosts(tmp_path: Path) -> None:
    certs, admin, servers, settings, starts, me, uses = section()
    environment = {**os.environ, CONFIG_VARIABLE: str(tmp_path / "contexts.json")}

    def rocketline(command: str) -> list[str]:
        return [sys.executable, "-m", *shlex.split(command)]

    def run(command: str) -> str:
        done = subprocess.run(
            rocketline(command), cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=PATIENCE_S
        )
        assert done.returncode in ((0, 1) if "doctor" in command else (0,)), (command, done.stdout + done.stderr)
        return done.stdout

    run(certs)
    folder = tmp_path / "rocketline"
    for name, content in {"admin.json": admin, "servers.json": servers, "server.conf": settings, "me.json": me}.items():
        (folder / name).write_text(content)
        (folder / name).chmod(0o600)
    (tmp_path / "users.yaml").write_text(USERS)
    with ExitStack() as stack:
        for command in starts.splitlines():
            process = subprocess.Popen(
                rocketline(command), cwd=tmp_path, env=environment, stdout=subprocess.PIPE, text=True
            )
            stack.enter_context(process)
            stack.callback(process.terminate)
            (ready,) = first_lines(process, 1)
            assert ready.startswith("ready ")
        told = [run(command) for command in uses.splitlines()]
        assert told[1].count("+ user shop (Normal, enable)") == 3, "two brokers and the name server"
        assert "servers" not in told[1]
        (namesrv,) = re.findall(r"-n (\S+)", uses)
        tls = Tls(ca_file=folder / "ca.pem")
        options = ClientOptions(credentials=CredentialsFile(folder / "me.json"), tls=tls)
        with blocking.Producer(namesrv, group="g", timeout=PATIENCE_S, options=options) as producer:
            stored = {producer.send(Message("orders", b"x")).queue.broker_name for _ in range(16)}
        assert stored == {"broker-a", "broker-b"}
        with (
            blocking.Producer(namesrv, group="g", options=ClientOptions(tls=tls)) as stranger,
            pytest.raises(RocketlineError, match="username cannot be null"),
        ):
            stranger.send(Message("orders", b"x"))
