"""The load generators on the load core: a C program that sends raw frames, and Apache's own client in a JVM.

They are built on first use into build/. A run returns a dictionary; the common keys are `rate`,
`messages` (measured window), `acked`, `errors` (whole run), `p50_us`, `p99_us`, `p999_us`, `max_us`, `first_error`.
"""

from __future__ import annotations

import hashlib
import json
import os
import selectors
import shutil
import subprocess
from pathlib import Path
from typing import Any

from bench import machine
from bench.sides import APACHE_VERSION
from tests.support.java import BUILD, classpath, compile_java, tool

HERE = Path(__file__).resolve().parent
CLIENT_HEAP = "-Xmx1g"
LIBRARIES = {"tls_load": ["-lssl", "-lcrypto"]}
"""What programs of bench/raw are linked with."""
OVERTIME_S = 60.0  # in addition to the duration, for set-up and late answers


class LoadFailed(RuntimeError):
    """A load generator could not be built or gave no result."""


class RawLoad:
    """A program of bench/raw: see its head for what it sends and checks."""

    def __init__(self, core: int, program: str = "load") -> None:
        self._core = core
        self._program = _compile_c(HERE / "raw" / f"{program}.c")

    def run(self, broker: str, broker_name: str, duration_s: float, **options: str | int | float) -> dict[str, Any]:
        """`options` are those of the program, with _ for -; `True` stands for a bare flag."""
        host, _, port = broker.rpartition(":")
        command = [str(self._program), "--host", host, "--port", port, "--broker-name", broker_name]
        command += ["--core", str(self._core)]
        for name, value in options.items():
            command.append("--" + name.replace("_", "-"))
            if value is not True:
                command.append(str(value))
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=duration_s + OVERTIME_S)
        except subprocess.TimeoutExpired as error:
            raise LoadFailed(f"{' '.join(command)} did not end within {error.timeout:.0f} s") from error
        if done.returncode != 0:
            raise LoadFailed(f"{' '.join(command)} ended with {done.returncode}: {done.stderr.strip()}")
        result: dict[str, Any] = json.loads(done.stdout)
        return result


class JavaLoad:
    """bench/java on Apache's client: one JVM for all runs on both sides, so that it is equally warm for each."""

    def __init__(self, core: int, scratch: Path) -> None:
        path = classpath(f"org.apache.rocketmq:rocketmq-client:{APACHE_VERSION}")
        classes = compile_java(HERE / "java", path, "bench")
        taskset = shutil.which("taskset") or "taskset"
        command = [taskset, "-c", str(core), tool("java"), CLIENT_HEAP, "-XX:+UseG1GC", f"-Duser.home={scratch}"]
        command += ["-cp", f"{classes}:{path}", "rocketline.bench.Load"]
        self._log = (scratch / "java-load.log").open("wb")
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._log, text=True, bufsize=1
        )

    @property
    def pid(self) -> int:
        return self._process.pid

    def run(self, verb: str, duration_s: float, **settings: str | int | float) -> dict[str, Any]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        began = machine.cpu_seconds([self._process.pid])
        line = " ".join([verb, *(f"{key}={value}" for key, value in settings.items())])
        self._process.stdin.write(line + "\n")
        self._process.stdin.flush()
        with selectors.DefaultSelector() as selector:
            selector.register(self._process.stdout, selectors.EVENT_READ)
            if not selector.select(duration_s + OVERTIME_S):
                raise LoadFailed(f"the Java load gave no result for: {line}")
        answer = self._process.stdout.readline()
        if not answer:
            raise LoadFailed(f"the Java load died upon: {line} (see {self._log.name})")
        result: dict[str, Any] = json.loads(answer)
        if "failed" in result:
            raise LoadFailed(f"the Java load failed upon: {line}: {result['failed']}")
        result["load_cpu_s"] = machine.cpu_seconds([self._process.pid]) - began
        return result

    def close(self) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process.stdout.close()
        self._log.close()


def _compile_c(source: Path) -> Path:
    content = hashlib.sha256(b"".join(path.read_bytes() for path in sorted(source.parent.glob("*.[ch]"))))
    program = BUILD / "bench" / f"{source.stem}-{content.hexdigest()[:16]}"
    if program.exists():
        return program
    compiler = shutil.which("cc")
    if compiler is None:
        raise LoadFailed("a C compiler (cc) is needed to build the raw load generator")
    program.parent.mkdir(parents=True, exist_ok=True)
    scratch = program.with_name(f"{program.name}.{os.getpid()}.tmp")  # several benchmarks may compile it at once
    flags = ["-O2", "-std=gnu11", "-Wall", "-Wextra", "-Werror", "-pthread"]
    done = subprocess.run(
        [compiler, *flags, str(source), "-o", str(scratch), *LIBRARIES.get(source.stem, [])],
        capture_output=True,
        text=True,
    )
    if done.returncode != 0:
        raise LoadFailed(f"cc failed for {source}:\n{done.stderr}")
    scratch.rename(program)
    return program
