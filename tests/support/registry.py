"""A schema registry as a process: Apicurio's, with everything in memory, from Maven. It speaks Confluent's interface too."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import tarfile
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.error import URLError
from urllib.request import Request, urlopen

from tests.support.java import BUILD, MAVEN_TIMEOUT_S, JavaUnavailable, locked, tail, tool
from tests.support.patience import PATIENCE_S

VERSION = "2.6.13.Final"
ARTIFACT = f"io.apicurio:apicurio-registry-app:{VERSION}:tar.gz:all"


def registry_folder() -> Path:
    """The unpacked registry, fetched once; JavaUnavailable when it cannot be had."""
    folder = BUILD / "registry" / VERSION
    with locked(BUILD / "maven" / "lock"):
        if not (folder / "complete").exists():
            folder.mkdir(parents=True, exist_ok=True)
            goal = "org.apache.maven.plugins:maven-dependency-plugin:3.7.0"
            for command in (
                [f"{goal}:get", f"-Dartifact={ARTIFACT}", "-Dtransitive=false"],
                [f"{goal}:copy", f"-Dartifact={ARTIFACT}", f"-DoutputDirectory={folder}"],
            ):
                done = subprocess.run(
                    [tool("mvn"), "-q", "-B", *command],
                    cwd=folder,
                    capture_output=True,
                    text=True,
                    timeout=MAVEN_TIMEOUT_S,
                )
                if done.returncode:
                    raise JavaUnavailable(f"{ARTIFACT} cannot be had:\n{tail(done.stdout + done.stderr)}")
            (packed,) = folder.glob("*.tar.gz")
            with tarfile.open(packed) as archive:
                archive.extractall(folder, filter="data")
            packed.unlink()
            (folder / "complete").touch()
    return folder


@contextmanager
def schema_registry() -> Iterator[str]:
    """The address of Confluent's interface of a running registry."""
    (jar,) = registry_folder().glob("*-runner.jar")
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    options = ["-Xmx256m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"]
    options += [f"-Dquarkus.http.port={port}", "-Dquarkus.http.host=127.0.0.1"]
    with tempfile.TemporaryFile() as said:
        process = subprocess.Popen(
            [tool("java"), *options, "-jar", str(jar)],
            stdin=subprocess.DEVNULL,
            stdout=said,
            stderr=subprocess.STDOUT,
            env={**os.environ, "REGISTRY_CCOMPAT_LEGACY_ID_MODE_ENABLED": "false"},
        )
        address = f"http://127.0.0.1:{port}/apis/ccompat/v7"
        try:
            _await(address, process)
            yield address
        finally:
            process.terminate()
            process.wait()


def register(address: str, subject: str, schema: Any) -> int:
    """Add a version of a schema; returns its id."""
    data = json.dumps({"schema": json.dumps(schema)}).encode()
    headers = {"Content-Type": "application/vnd.schemaregistry.v1+json"}
    with urlopen(Request(f"{address}/subjects/{subject}/versions", data, headers), timeout=PATIENCE_S) as answer:
        return int(json.load(answer)["id"])


def _await(address: str, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        assert process.poll() is None, "the registry ended"
        with suppress(URLError, OSError), urlopen(f"{address}/subjects", timeout=PATIENCE_S):
            return
        time.sleep(0.1)
    raise AssertionError("the registry never answered")
