"""The process that runs Apache's Java client for us: one JSON command per line in, one reply per line out.

The Java side is tests/interop/java. It is compiled once, against client 4.9.7, and runs on the class path of
any version.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.support.patience import PATIENCE_MS

from .java import ROOT, classpath, compile_java, tool
from .process_driver import ProcessDriver

SOURCES = ROOT / "tests" / "interop" / "java"
CLIENT_VERSIONS = ("5.5.0", "5.4.0", "4.9.7")
COMPILED_AGAINST = "4.9.7"

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


def client_coordinates(version: str) -> tuple[str, str]:
    """The Maven coordinates of a client version and its admin tools."""
    return f"org.apache.rocketmq:rocketmq-client:{version}", f"org.apache.rocketmq:rocketmq-tools:{version}"


def driver_classes() -> Path:
    """The folder of the compiled driver."""
    return compile_java(SOURCES, classpath(*client_coordinates(COMPILED_AGAINST)), "driver")


class JavaDriver(ProcessDriver):
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
        super().__init__(f"Java client {version}")

    def _command(self) -> list[str]:
        class_path = f"{driver_classes()}:{classpath(*self._coordinates)}"
        command = [tool("java"), *self._jvm_options, f"-Duser.home={self._home}", f"-Djava.io.tmpdir={self._home}"]
        return [*command, f"-Drocketmq.serialize.type={self.serialize}", "-cp", class_path, "rocketline.interop.Driver"]

    def _refused(self, command: str, error: Any) -> Exception:
        return JavaCallError(command, error)
