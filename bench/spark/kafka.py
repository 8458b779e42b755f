"""A Kafka server in KRaft mode, and Spark's source and sink for it: by Maven coordinates."""

from __future__ import annotations

import subprocess
import time
from pathlib import Path

from bench.sides import SideFailed
from tests.support.apache import TETHER, free_port
from tests.support.java import classpath, compile_java, tool

SERVER = ("org.apache.kafka:kafka_2.13:4.1.0", "org.apache.kafka:kafka-tools:4.1.0")
SPARK_JARS = (
    "org.apache.spark:spark-sql-kafka-0-10_2.13:4.2.0",
    # Tokens for Kerberos, which nobody uses here: any version will do.
    "org.apache.spark:spark-token-provider-kafka-0-10_2.13:4.0.0",
    "org.apache.kafka:kafka-clients:4.1.0",
    "org.apache.commons:commons-pool2:2.12.1",
)
START_TIMEOUT_S = 90.0


def spark_jars() -> str:
    """For the setting `spark.jars`."""
    return classpath(*SPARK_JARS, alone=True).replace(":", ",")


class KafkaServer:
    """A broker that is its own controller; ends when this process does."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True)
        port, controller = free_port(), free_port()
        self.address = f"127.0.0.1:{port}"
        self._folder, self._config = folder, folder / "server.properties"
        settings = {
            "process.roles": "broker,controller",
            "node.id": "1",
            "controller.quorum.bootstrap.servers": f"127.0.0.1:{controller}",
            "listeners": f"PLAINTEXT://{self.address},CONTROLLER://127.0.0.1:{controller}",
            "controller.listener.names": "CONTROLLER",
            "log.dirs": str(folder / "logs"),
            "offsets.topic.replication.factor": "1",
            "transaction.state.log.replication.factor": "1",
            "transaction.state.log.min.isr": "1",
            "group.initial.rebalance.delay.ms": "0",
        }
        self._config.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
        self._class_path = f"{compile_java(TETHER, '', 'tether')}:{classpath(*SERVER)}"
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pids(self) -> list[int]:
        return [self._process.pid] if self._process is not None else []

    def start(self) -> None:
        self._run(
            "kafka.tools.StorageTool", "format", "--standalone", "-t", "MkU3OEVBNTcwNTJENDM2Qg", "-c", str(self._config)
        )
        with (self._folder / "server.log").open("wb") as log:
            self._process = subprocess.Popen(
                [*self._java("1g"), "rocketline.support.Tethered", "kafka.Kafka", str(self._config)],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        deadline = time.monotonic() + START_TIMEOUT_S
        while not self._answers():
            if self._process.poll() is not None or time.monotonic() > deadline:
                raise SideFailed(
                    f"Kafka does not serve {self.address}; {(self._folder / 'server.log').read_text()[-2000:]}"
                )

    def create_topic(self, name: str, partitions: int) -> None:
        command = ["--create", "--topic", name, "--partitions", str(partitions), "--replication-factor", "1"]
        self._run("org.apache.kafka.tools.TopicCommand", "--bootstrap-server", self.address, *command)

    def trickle(self, topic: str, rows_s: int, body: int) -> subprocess.Popen[bytes]:
        """A producer that sends so many rows in a second, until it is killed."""
        sending = [
            "--topic",
            topic,
            "--num-records",
            "1000000000",
            "--record-size",
            str(body),
            "--throughput",
            str(rows_s),
        ]
        properties = ["--producer-props", f"bootstrap.servers={self.address}"]
        tether = ["rocketline.support.Tethered", "org.apache.kafka.tools.ProducerPerformance"]
        return subprocess.Popen(
            [*self._java("256m"), *tether, *sending, *properties],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )

    def stop(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.wait()

    def _answers(self) -> bool:
        try:
            self._run("org.apache.kafka.tools.TopicCommand", "--bootstrap-server", self.address, "--list")
        except subprocess.SubprocessError:
            return False
        return True

    def _java(self, heap: str) -> list[str]:
        return [tool("java"), f"-Xmx{heap}", "-XX:-UsePerfData", "-cp", self._class_path]

    def _run(self, main_class: str, *arguments: str) -> None:
        subprocess.run([*self._java("256m"), main_class, *arguments], check=True, capture_output=True, timeout=60)
