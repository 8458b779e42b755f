"""Apache's 5.x clients of each language, unchanged from their registries, behind one set of commands.

The programs that run them are in tests/grpc_front/clients. What they need is fetched and built once per content, into
`build/`; a language whose tools are missing raises `ToolMissing`.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from .java import ROOT, JavaUnavailable, classpath, compile_java, tool
from .process_driver import ProcessDriver
from .toolchains import GO_BUILD, RUST_BUILD, ToolMissing, built_copy, found

CLIENTS = ROOT / "tests" / "grpc_front" / "clients"
INTEROP_JAVA = ROOT / "tests" / "interop" / "java"
JAVA_CLIENT = "org.apache.rocketmq:rocketmq-client-java:5.2.0"
REQUEST_S = 60
"""How long a client waits for an answer, where it can be told: a busy machine must not be why it does not come."""


class CallRefused(RuntimeError):
    """The client raised an error."""


def _python(home: Path) -> list[str]:
    return [sys.executable, str(CLIENTS / "python" / "driver.py")]


def _java(home: Path) -> list[str]:
    try:
        jars = classpath(JAVA_CLIENT)
        classes = compile_java(CLIENTS / "java", jars, "five", INTEROP_JAVA)
        java = tool("java")
    except JavaUnavailable as error:
        raise ToolMissing(str(error)) from error
    options = ["-Xmx256m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-XX:-UsePerfData", f"-Duser.home={home}"]
    # Its log goes to the home folder; a quarter of a second of every start would be spent on looking for log4j.
    return [java, *options, "-Drocketmq.log.level=warn", "-cp", f"{classes}:{jars}", "rocketline.interop.FiveDriver"]


def _node(home: Path) -> list[str]:
    npm = ["npm", "install", "--no-audit", "--no-fund", "--no-package-lock", "--silent"]
    return [found("node"), str(built_copy(CLIENTS / "node", "client-node", npm) / "driver.js")]


def _go(home: Path) -> list[str]:
    return [str(built_copy(CLIENTS / "go", "client-go", GO_BUILD) / "program")]


def _rust(home: Path) -> list[str]:
    return [str(built_copy(CLIENTS / "rust", "client-rust", RUST_BUILD) / "bin" / "driver")]


COMMANDS: dict[str, Callable[[Path], list[str]]] = {
    "python": _python,
    "java": _java,
    "node": _node,
    "go": _go,
    "rust": _rust,
}
_LACKS = {"rust": {"start_push", "change", "recall"}}
"""Commands for which a client has no calls."""


def languages(*commands: str) -> list[str]:
    """Those whose clients can do all of this."""
    return [language for language in COMMANDS if _LACKS.get(language, set()).isdisjoint(commands)]


def build(language: str) -> None:
    """Fetch and build, so that a later start does not have to."""
    COMMANDS[language](Path("/"))


def require_client(language: str) -> None:
    """Leave the test unless this client can be had: skip on a laptop, fail where CI=true."""
    try:
        build(language)
    except ToolMissing as error:
        if os.environ.get("CI", "").lower() == "true":
            pytest.fail(f"CI must have the {language} client: {error}", pytrace=False)
        pytest.skip(str(error))


class FiveClient(ProcessDriver):
    """A process with the client of one language; `access` are the arguments that every start of a client gets."""

    def __init__(self, language: str, **access: str) -> None:
        self.language = language
        self._access = access
        self._numbers = 0
        super().__init__(f"{language} client")

    def start(self, kind: str, **args: Any) -> str:
        """Start a producer, a simple or a push consumer; its name."""
        self._numbers += 1
        name = f"{kind}-{self._numbers}"
        self.call(f"start_{kind}", name=name, **self._access, **args)
        return name

    def _command(self) -> list[str]:
        return COMMANDS[self.language](Path(self._home))

    def _environment(self) -> dict[str, str]:
        # The name of the Go client's setting has dots.
        return {**os.environ, "HOME": self._home, "REQUEST_S": str(REQUEST_S), "rocketmq.client.logRoot": self._home}

    def _refused(self, command: str, error: Any) -> Exception:
        return CallRefused(f"{self.language} {command}: {error}")
