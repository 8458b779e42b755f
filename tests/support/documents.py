"""Documents as programs: their blocks, and terminals in which somebody follows them."""

from __future__ import annotations

import re
import shlex
import signal
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path


def blocks(document: Path) -> Iterator[tuple[str, str]]:
    """The kind and text of a document's programs, each at the lines it has there: tracebacks point into the document."""
    text = document.read_text("utf-8")
    for found in re.finditer(r"^```(python|sh)\n(.*?)^```", text, flags=re.DOTALL | re.MULTILINE):
        yield found.group(1), "\n" * text.count("\n", 0, found.start(2)) + found.group(2)


class Terminals:
    """Where the tutorial is followed: a folder with its programs, one terminal for the broker, one for a consumer.

    A block of Python is saved under the name in its first line. A block of output says what the command before it prints;
    `...` in it stands for anything, and lines may come in another order, because queues are read side by side. The words
    "with Ctrl-C" end the consumer, or the broker when no consumer runs.
    """

    def __init__(self, folder: Path, stack: ExitStack, python: str, environment: Mapping[str, str]) -> None:
        self._folder = folder
        self._stack = stack
        self._python = python
        self._environment = dict(environment)
        self._programs: dict[str, str] = {}
        self.namesrv = ""
        self._broker: subprocess.Popen[str] | None = None
        self._consumer: subprocess.Popen[str] | None = None

    def save(self, program: str) -> None:
        self._programs[program.partition("\n")[0].removeprefix("# ")] = program

    def run(self, command: str, expected: list[str]) -> None:
        words = shlex.split(command)
        if words[:2] == ["rocketline", "up"]:
            self._broker = self._start(["-m", *words, "--namesrv-port", "0", "--broker-port", "0"])
            (ready,) = first_lines(self._broker, 1)
            (self.namesrv,) = re.findall(r"ready namesrv=(\S+) brokers=broker-a@\S+", ready)
        elif words[0] == "rocketline":
            self._finish(["-m", *words], expected)
        else:
            program = self._programs[words[1]]
            (self._folder / words[1]).write_text(program.replace("127.0.0.1:9876", self.namesrv))
            if "consumer.run()" in program:
                assert self._consumer is None, "the document must stop the one before"
                self._consumer = self._start(["-u", words[1]])
                compare(first_lines(self._consumer, len(expected)), expected)
            else:
                self._finish(words[1:], expected)

    def _finish(self, arguments: list[str], expected: list[str]) -> None:
        """A command that ends; one that looks at the cluster is repeated until others have done what it is to show."""
        while True:
            process = self._start(arguments)
            lines = list(process.stdout or ())
            assert process.wait() == 0
            if arguments[:3] != ["-m", "rocketline", "admin"] or not expected or len(lines) == len(expected):
                break
        if expected:
            compare(lines, expected)
        else:
            assert lines, arguments

    def _start(self, arguments: list[str]) -> subprocess.Popen[str]:
        environment = self._environment | {"NAMESRV_ADDR": self.namesrv}
        command = [self._python, *arguments]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=self._folder, env=environment)
        self._stack.callback(process.wait)
        self._stack.callback(process.kill)
        assert process.stdout is not None
        self._stack.enter_context(process.stdout)
        return process

    def interrupt(self) -> None:
        """Ctrl-C to the consumer, or without one to the broker; both end in order."""
        process, self._consumer = self._consumer or self._broker, None
        assert process is not None
        process.send_signal(signal.SIGINT)
        assert process.wait() == 0


def first_lines(process: subprocess.Popen[str], count: int) -> list[str]:
    assert process.stdout is not None
    return [process.stdout.readline() for _ in range(count)]


def compare(lines: list[str], expected: list[str]) -> None:
    """Line by line, in any order; spaces and tabs between words count as one space."""
    printed = sorted(" ".join(line.split()) for line in lines)
    patterns = [re.escape(line).replace(r"\.\.\.", ".*") for line in sorted(expected)]
    assert len(printed) == len(patterns), printed
    assert all(any(re.fullmatch(pattern, line) for line in printed) for pattern in patterns), (printed, expected)


@dataclass(frozen=True)
class Step:
    """A block of a document that is followed in terminals."""

    line: int
    interrupts: int
    """How often the words before it say to press Ctrl-C."""
    kind: str
    text: str
    output: list[str]
    """What the document says that the command prints."""

    def follow(self, terminals: Terminals) -> None:
        for _ in range(self.interrupts):
            terminals.interrupt()
        if self.kind == "python":
            terminals.save(self.text)
        elif self.kind == "sh":
            terminals.run(self.text.strip(), self.output)


def steps(document: Path) -> Iterator[Step]:
    parts = re.split(r"^```(\w*)\n(.*?)^```\n", document.read_text("utf-8"), flags=re.DOTALL | re.MULTILINE)
    prose, kinds, texts = parts[::3], parts[1::3], parts[2::3]
    line = 1
    for number, (before, kind, block) in enumerate(zip(prose, kinds, texts)):
        line += before.count("\n")
        has_output = kinds[number + 1 : number + 2] == ["text"] and not prose[number + 1].strip()
        output = texts[number + 1].splitlines() if has_output else []
        yield Step(line + 1, before.count("with Ctrl-C"), kind, block, output)
        line += block.count("\n") + 2
