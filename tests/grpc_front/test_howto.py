"""The first message of each language in docs/howto/grpc.md, as it stands there, sent to a front."""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.five_clients import CLIENTS, JAVA_CLIENT, require_client
from tests.support.grpc_client import defs
from tests.support.grpc_front import Address, Front
from tests.support.java import ROOT, classpath, tool
from tests.support.patience import PATIENCE_S
from tests.support.toolchains import GO_BUILD, RUST_BUILD, built_copy, found

from rocketline.admin import Admin
from rocketline.cli.servers.child import ChildCluster
from rocketline.protocol.bodies import TopicConfig
from rocketline.testing import LocalCluster
from rocketline.transport.credentials import CredentialsFile
from rocketline.transport.tls import Tls

pytestmark = [pytest.mark.interop, pytest.mark.xdist_group("grpc faults")]

GROUP = "readers"
"""Has acknowledged the messages of the languages before."""
IN_JAVA = """import java.util.*;
import org.apache.rocketmq.client.apis.*;
public class First {{ public static void main(String[] args) throws Exception {{
{}
System.exit(0); }} }}
"""
IN_GO = """package main
import (
	"context"
	"fmt"
	rocketmq "github.com/apache/rocketmq-clients/golang/v5"
	"github.com/apache/rocketmq-clients/golang/v5/credentials"
)
func main() {{
{}
}}
"""
IN_RUST = """use rocketmq::conf::{{ClientOption, ProducerOption}};
use rocketmq::model::message::MessageBuilder;
use rocketmq::Producer;
#[tokio::main]
async fn main() {{
{}
}}
"""
IN_NODE = "(async () => {{\n{}\nprocess.exit(0);\n}})();\n"


def snippet(heading: str) -> str:
    """The first block of code after a line of the how-to that begins so."""
    text = (ROOT / "docs" / "howto" / "grpc.md").read_text()
    _, _, after = text.partition(f"\n{heading}")
    assert after, heading
    return after.split("```", 2)[1].partition("\n")[2]


def java_program(code: str, folder: Path) -> list[str]:
    (folder / "First.java").write_text(IN_JAVA.format(code))
    options = [f"-Duser.home={folder}", "-Xmx256m", "-cp", classpath(JAVA_CLIENT)]
    return [tool("java"), *options, str(folder / "First.java")]


def go_program(code: str, folder: Path) -> list[str]:
    sources = folder / "go"
    sources.mkdir()
    shutil.copy(CLIENTS / "go" / "go.mod", sources)
    (sources / "main.go").write_text(IN_GO.format(code))
    # The port differs each time: what is built is of this test alone.
    subprocess.run([found(GO_BUILD[0]), *GO_BUILD[1:]], cwd=sources, check=True, timeout=PATIENCE_S)
    return [str(sources / "program")]


def node_program(code: str, folder: Path) -> list[str]:
    npm = ["npm", "install", "--no-audit", "--no-fund", "--no-package-lock", "--silent"]
    modules = built_copy(CLIENTS / "node", "client-node", npm) / "node_modules"
    (folder / "node_modules").symlink_to(modules)
    (folder / "first.js").write_text(IN_NODE.format(code))
    return [found("node"), str(folder / "first.js")]


def rust_program(code: str, folder: Path) -> list[str]:
    sources = folder / "rust"
    (sources / "src").mkdir(parents=True)
    shutil.copy(CLIENTS / "rust" / "Cargo.toml", sources)
    (sources / "src" / "main.rs").write_text(IN_RUST.format(code))
    subprocess.run([found(RUST_BUILD[0]), *RUST_BUILD[1:]], cwd=sources, check=True, timeout=PATIENCE_S)
    return [str(sources / "bin" / "driver")]


def python_program(code: str, folder: Path) -> list[str]:
    (folder / "first.py").write_text(f"{code}\nproducer.shutdown()\n")
    return [sys.executable, str(folder / "first.py")]


PROGRAMS = {
    "python": ("Python (", python_program),
    "java": ("Java (", java_program),
    "go": ("Go (", go_program),
    "node": ("Node.js (", node_program),
    "rust": ("Rust (", rust_program),
}


def test_the_versions_that_it_names_are_those_that_are_tested() -> None:
    patterns = {
        "Go": ("go/go.mod", r"golang/v5 v(\S+)"),
        "Node.js": ("node/package.json", r'nodejs": "(\S+)"'),
        "Rust": ("rust/Cargo.toml", r'rocketmq = "=(\S+)"'),
    }
    tested = {name: re.findall(pattern, (CLIENTS / path).read_text()) for name, (path, pattern) in patterns.items()}
    tested |= {"Java": [JAVA_CLIENT.rpartition(":")[2]]}
    text = (ROOT / "docs" / "howto" / "grpc.md").read_text()
    (named,) = re.findall(r"is tested with these clients: (.+?)\. Those", text)
    versions = {name: [number] for name, number in (item.split() for item in named.split(", "))}
    assert versions.pop("Python")  # whichever there is, of those that pyproject.toml allows
    assert versions == tested


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    with LocalCluster(grpc=True) as running:
        yield running


SECURED = {
    "python": [("Credentials())", "Credentials({key!r}, {secret!r}))"), ('("orders",))', '("orders",), tls_enable=True)')],
    "node": [
        ("topics: ['orders']", "topics: ['orders'], sslEnabled: true, sessionCredentials: "
         "{{ accessKey: {key!r}, accessSecret: {secret!r} }}"),
    ],
}  # fmt: skip
"""What of the first message becomes what, for TLS and an account."""


@pytest.mark.parametrize("language", SECURED)
async def test_clients_that_check_certificates_trust_ours(language: str, tmp_path: Path) -> None:
    require_client(language)
    with ChildCluster([f"--data={tmp_path / 'data'}", "--secure", "--grpc-port=0"]) as cluster:
        account = CredentialsFile(tmp_path / "data" / "admin.json")()
        ca_file = tmp_path / "data" / "certs" / "ca.pem"
        async with Admin(cluster.namesrv, credentials=account, tls=Tls(ca_file=ca_file), timeout=PATIENCE_S) as admin:
            (broker,) = await admin.brokers()
            await broker.put_topics([TopicConfig("orders", 2, 2, attributes={"+message.type": "NORMAL"})])
            heading, made = PROGRAMS[language]
            code = snippet(heading).replace("127.0.0.1:8081", cluster.grpc)
            for plain, secured in SECURED[language]:
                assert plain in code
                code = code.replace(plain, secured.format(key=account.access_key, secret=account.secret_key))
            environment = {**os.environ, "HOME": str(tmp_path), "GRPC_DEFAULT_SSL_ROOTS_FILE_PATH": str(ca_file)}
            done = await asyncio.to_thread(
                subprocess.run, made(code, tmp_path), capture_output=True, text=True, timeout=PATIENCE_S,
                env=environment, cwd=tmp_path,
            )  # fmt: skip
            assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
            queues = (await broker.topic_stats("orders")).offset_table.values()
            assert sum(queue.max_offset for queue in queues) == 1


@pytest.mark.parametrize("language", PROGRAMS)
async def test_the_first_message_arrives(cluster: LocalCluster, language: str, tmp_path: Path) -> None:
    require_client(language)
    async with Admin(cluster.namesrv, timeout=PATIENCE_S) as admin:
        (broker,) = await admin.brokers()
        await broker.put_topics([TopicConfig("orders", 2, 2, attributes={"+message.type": "NORMAL"})])
    heading, made = PROGRAMS[language]
    program = made(snippet(heading).replace("127.0.0.1:8081", cluster.grpc_address), tmp_path)
    environment = {**os.environ, "HOME": str(tmp_path)}
    if language == "go":  # it takes its caches, and the switch for TLS, from the environment
        environment["HOME"] = os.environ.get("HOME", str(tmp_path))
    done = subprocess.run(program, capture_output=True, text=True, timeout=PATIENCE_S, env=environment, cwd=tmp_path)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    address = Address(cluster.grpc_address, cluster.namesrv, is_ours=True, has_our_broker=True)
    async with Front(address) as front, front.consumer(GROUP, "orders") as client:
        (got,) = await client.receive_until(GROUP, "orders", 1)
        assert got.body == b"an order"
        assert (await client.ack(GROUP, "orders", got)).entries[0].status.code == defs.Code.OK
