"""Apache's `mqadmin`: verbs run one after the other in one JVM, as starting one for each would take minutes."""

from __future__ import annotations

import base64
import re
import subprocess
import tempfile
import threading
import time
from pathlib import Path
from typing import NamedTuple, Self

from tests.support.patience import PATIENCE_S

from .java import classpath, compile_java, tool
from .java_driver import JVM_OPTIONS, client_coordinates

SOURCES = Path(__file__).parent / "mqadmin"
TIMED_OUT = "RemotingTimeoutException"
QUIET = [f"-D{key}={SOURCES}/logback.xml" for key in ("logback.configurationFile", "rmq.logback.configurationFile")]


class Printed(NamedTuple):
    out: str
    err: str

    @property
    def failed(self) -> bool:
        """It never exits with another code than 0: a failure is a stack trace."""
        return "Exception" in self.err or "Exception" in self.out


class MqAdmin:
    """The tools of one version; a context manager. Nobody waits for a verb for ever: the JVM is killed then.

    `account` is the access key and secret key that they sign with; they read both from a file of their own.
    """

    def __init__(self, version: str, account: tuple[str, str] | None = None) -> None:
        jars = classpath(*client_coordinates(version))
        classes = compile_java(SOURCES, jars, "mqadmin")
        # Some verbs leave files where they are run.
        self._folder = tempfile.TemporaryDirectory(prefix="mqadmin")
        home = Path(self._folder.name)
        if account is not None:
            (home / "conf").mkdir()
            (home / "conf" / "tools.yml").write_text("accessKey: {}\nsecretKey: {}\n".format(*account), "utf-8")
        command = [tool("java"), *JVM_OPTIONS, *QUIET, f"-Drocketmq.home.dir={home}"]
        command += ["-cp", f"{classes}:{jars}", "rocketline.support.Verbs"]
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            cwd=self._folder.name,
            start_new_session=True,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def run(self, namesrv: str, verb: str, *arguments: object) -> Printed:
        """What a verb prints; `~verb` is interrupted when it has printed something.

        The tools wait five seconds for an answer, and cannot be told otherwise: on a busy machine they are asked again.
        """
        deadline = time.monotonic() + PATIENCE_S
        while True:
            printed = self._answer([verb, *map(str, arguments), "-n", namesrv])
            if TIMED_OUT not in printed.out + printed.err or time.monotonic() > deadline:
                return printed

    def verbs(self) -> list[str]:
        """All there are."""
        return re.findall(r"^   (\w+) ", self._answer([]).out, flags=re.MULTILINE)

    def _answer(self, words: list[str]) -> Printed:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        assert not any("\t" in word or "\n" in word for word in words)
        killer = threading.Timer(PATIENCE_S, self._process.kill)
        killer.start()
        try:
            self._process.stdin.write("\t".join(words).encode() + b"\n")
            self._process.stdin.flush()
            answer = self._process.stdout.readline()
        finally:
            killer.cancel()
        if not answer:
            raise RuntimeError(f"mqadmin {' '.join(words)} gave no answer within {PATIENCE_S:g} s, or ended the JVM")
        out, err = answer.rstrip(b"\n").split(b" ")
        return Printed(base64.b64decode(out).decode(), base64.b64decode(err).decode())

    def close(self) -> None:
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()
        self._folder.cleanup()
