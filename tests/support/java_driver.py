"""The process that runs Apache's Java client for us: one JSON command per line in, one reply per line out.

The Java side is tests/interop/java. It is compiled once, against client 4.9.7, and runs on the class path of
any version. Calls block and are served one at a time; from asyncio use `asyncio.to_thread`.
"""

from __future__ import annotations

import json
import queue
import shutil
import subprocess
import tempfile
import threading
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Self

from tests.support.patience import PATIENCE_MS, PATIENCE_S

from .java import ROOT, classpath, compile_java, tool

SOURCES = ROOT / "tests" / "interop" / "java"
CLIENT_VERSIONS = ("5.5.0", "5.4.0", "4.9.7")
COMPILED_AGAINST = "4.9.7"
STOP_TIMEOUT_S = 10.0
STDERR_LINES = 60

JVM_OPTIONS = (
    "-Xmx256m",
    "-XX:TieredStopAtLevel=1",
    "-XX:+UseSerialGC",
    "-XX:-UsePerfData",
    "-Dfile.encoding=UTF-8",
    # A consumer that misses its first chance to share out queues would wait 20 s for the next.
    "-Drocketmq.client.rebalance.waitInterval=1000",
    "-Drocketmq.client.rebalance.minInterval=100",
    "-Dcom.rocketmq.sendMessageWithVIPChannel=false",
    f"-Drocketline.patience.ms={PATIENCE_MS}",
    "-Dcom.rocketmq.remoting.client.connect.timeout=60000",
    "-Drocketmq.client.logUseSlf4j=true",
    "-Drocketmq.client.logLevel=WARN",
    f"-Dlogback.configurationFile={SOURCES}/logback.xml",
    f"-Drmq.logback.configurationFile={SOURCES}/logback.xml",
)


class JavaCallError(RuntimeError):
    """The Java side answered with an exception. `code` is its RocketMQ response code, if it carries one."""

    def __init__(self, command: str, error: dict[str, Any]) -> None:
        self.command = command
        self.class_name = str(error["class"]).rpartition(".")[2]
        self.code: int | None = error["code"]
        self.message: str | None = error["message"]
        self.cause = JavaCallError(command, error["cause"]) if error["cause"] else None
        because = f"; caused by {self.cause}" if self.cause else ""
        super().__init__(f"{command}: {self.class_name}(code={self.code}): {self.message}{because}")


class JavaDriverFailed(RuntimeError):
    """The Java process died, fell silent or could not be started."""


def client_coordinates(version: str) -> tuple[str, str]:
    """The Maven coordinates of a client version and its admin tools."""
    return f"org.apache.rocketmq:rocketmq-client:{version}", f"org.apache.rocketmq:rocketmq-tools:{version}"


def driver_classes() -> Path:
    """The folder of the compiled driver."""
    return compile_java(SOURCES, classpath(*client_coordinates(COMPILED_AGAINST)), "driver")


class JavaDriver:
    """One JVM with the client of `version`; a context manager. `serialize` is "JSON" or "ROCKETMQ".

    `coordinates` may name other jars, which must have the client and its tools among them: a broker's, for its filters.
    """

    def __init__(
        self,
        version: str,
        serialize: str = "JSON",
        coordinates: Sequence[str] = (),
        jvm_options: Sequence[str] = (),
    ) -> None:
        self.version = version
        self._coordinates = coordinates or client_coordinates(version)
        self.serialize = serialize
        self._jvm_options = (*JVM_OPTIONS, *jvm_options)
        self._home = tempfile.mkdtemp(prefix="rocketline-java-")
        self._calling = threading.Lock()
        self._replies: queue.SimpleQueue[bytes] = queue.SimpleQueue()
        self._stderr: deque[str] = deque(maxlen=STDERR_LINES)
        self._process = self._launch()
        self._readers = [
            threading.Thread(target=self._read_replies, daemon=True),
            threading.Thread(target=self._read_stderr, daemon=True),
        ]
        for reader in self._readers:
            reader.start()
        try:
            self.call("ping", PATIENCE_S)
        except BaseException:
            self._release()
            raise

    @property
    def pid(self) -> int:
        return self._process.pid

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def call(self, command: str, timeout_s: float = PATIENCE_S, /, **args: Any) -> Any:
        """Run one command and return its result; arguments that are None are left out."""
        given = {name: value for name, value in args.items() if value is not None}
        line = json.dumps({"cmd": command, "args": given}).encode() + b"\n"
        with self._calling:
            reply = self._exchange(command, line, timeout_s)
        if "error" in reply:
            raise JavaCallError(command, reply["error"])
        return reply["result"]

    def close(self) -> None:
        """End the process; clients that are still open just go away. A process that will not end is killed."""
        try:
            if self._process.poll() is None:
                self.call("quit", STOP_TIMEOUT_S)
                self._process.wait(STOP_TIMEOUT_S)
        except (JavaDriverFailed, subprocess.TimeoutExpired):
            pass  # a shutdown that hangs says nothing about what was tested
        finally:
            self._release()

    def _launch(self) -> subprocess.Popen[bytes]:
        class_path = f"{driver_classes()}:{classpath(*self._coordinates)}"
        command = [tool("java"), *self._jvm_options, f"-Duser.home={self._home}", f"-Djava.io.tmpdir={self._home}"]
        command += [f"-Drocketmq.serialize.type={self.serialize}", "-cp", class_path, "rocketline.interop.Driver"]
        pipe = subprocess.PIPE
        return subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, start_new_session=True)

    def _exchange(self, command: str, line: bytes, timeout_s: float) -> dict[str, Any]:
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(line)
            self._process.stdin.flush()
            reply = self._replies.get(timeout=timeout_s)
        except (OSError, ValueError) as error:
            raise self._failure(command, "is gone") from error
        except queue.Empty:
            # The late reply would be taken for the next command's: this process is of no more use.
            self._process.kill()
            raise self._failure(command, f"did not answer within {timeout_s} s") from None
        if not reply:
            self._replies.put(reply)  # the end stays the end for every later call
            raise self._failure(command, "ended")
        answer: dict[str, Any] = json.loads(reply)
        return answer

    def _failure(self, command: str, what: str) -> JavaDriverFailed:
        said = "\n".join(self._stderr) or "(nothing)"
        return JavaDriverFailed(f"Java client {self.version} {what} during '{command}'; its log ends:\n{said}")

    def _read_replies(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._replies.put(line)
        self._replies.put(b"")

    def _read_stderr(self) -> None:
        assert self._process.stderr is not None
        for line in self._process.stderr:
            self._stderr.append(line.decode(errors="replace").rstrip())

    def _release(self) -> None:
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait()
        for reader in self._readers:
            reader.join()
        for pipe in (self._process.stdin, self._process.stdout, self._process.stderr):
            if pipe is not None:
                # A process that died leaves a call half written; what is closed here is closed all the same.
                with suppress(OSError):
                    pipe.close()
        shutil.rmtree(Path(self._home), ignore_errors=True)
