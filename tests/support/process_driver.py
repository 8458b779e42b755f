"""A process that runs somebody else's client for us: one JSON command per line in, one reply per line out.

A command is {"cmd": name, "args": {...}}, a reply {"result": ...} or {"error": ...}. Calls block and are served one at a
time; from asyncio use `asyncio.to_thread`.
"""

from __future__ import annotations

import json
import queue
import shutil
import subprocess
import tempfile
import threading
from abc import ABC, abstractmethod
from collections import deque
from contextlib import suppress
from pathlib import Path
from typing import Any, Self

from tests.support.patience import PATIENCE_S

STOP_TIMEOUT_S = 10.0
STDERR_LINES = 60


class DriverFailed(RuntimeError):
    """The process died, fell silent or could not be started."""


class ProcessDriver(ABC):
    """One process; a context manager. `title` names it in errors."""

    def __init__(self, title: str) -> None:
        self._title = title
        self._home = tempfile.mkdtemp(prefix="rocketline-driver-")
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
            raise self._refused(command, reply["error"])
        return reply["result"]

    def close(self) -> None:
        """End the process; clients that are still open just go away. A process that will not end is killed."""
        try:
            if self._process.poll() is None:
                self.call("quit", STOP_TIMEOUT_S)
                self._process.wait(STOP_TIMEOUT_S)
        except (DriverFailed, subprocess.TimeoutExpired):
            pass  # a shutdown that hangs says nothing about what was tested
        finally:
            self._release()

    def kill(self) -> None:
        """End it as a crash would."""
        self._release()

    @abstractmethod
    def _command(self) -> list[str]:
        """The program and its arguments; `self._home` is a folder of its own."""

    @abstractmethod
    def _refused(self, command: str, error: Any) -> Exception:
        """What to raise for the "error" of a reply."""

    def _environment(self) -> dict[str, str] | None:
        return None

    def _launch(self) -> subprocess.Popen[bytes]:
        pipe = subprocess.PIPE
        return subprocess.Popen(
            self._command(), stdin=pipe, stdout=pipe, stderr=pipe, start_new_session=True, env=self._environment()
        )

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

    def _failure(self, command: str, what: str) -> DriverFailed:
        said = "\n".join(self._stderr) or "(nothing)"
        return DriverFailed(f"{self._title} {what} during '{command}'; its log ends:\n{said}")

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
