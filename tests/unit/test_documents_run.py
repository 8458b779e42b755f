"""Documents that are programs: their blocks run from top to bottom in one namespace, as somebody would paste them into
`python -m asyncio`, and their commands in between as in a shell; the tutorial runs as a newcomer runs it, with files and
terminals; and the names and numbers that documents state are those of the code."""

from __future__ import annotations

import ast
import asyncio
import inspect
import os
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import fields
from functools import lru_cache
from pathlib import Path
from typing import Any

import pytest

from rocketline.cli.entry import main
from rocketline.cli.servers.child import cli_environment
from rocketline.client import ClientTiming, Ordering, PullSettings, PushConsumer

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "rocketline"
RUNNING = (
    "docs/topics/consuming.md",
    "docs/topics/pop.md",
    "docs/howto/consume.md",
    "docs/howto/produce.md",
    "docs/howto/operate.md",
    "docs/howto/metrics.md",
    "docs/howto/secure.md",
    "docs/howto/adapters.md",
    "docs/formats.md",
)
DOCUMENTS = sorted(path for pattern in ("*.md", "docs/**/*.md") for path in ROOT.glob(pattern))
WALK = ROOT / "docs" / "topics" / "consuming.md"
TUTORIAL = ROOT / "docs" / "tutorial.md"


def blocks(document: Path) -> Iterator[tuple[str, str]]:
    """The kind and text of a document's programs, each at the lines it has there: tracebacks point into the document."""
    text = document.read_text("utf-8")
    for found in re.finditer(r"^```(python|sh)\n(.*?)^```", text, flags=re.DOTALL | re.MULTILINE):
        yield found.group(1), "\n" * text.count("\n", 0, found.start(2)) + found.group(2)


@pytest.mark.parametrize("name", RUNNING)
async def test_a_document_runs_from_top_to_bottom(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    document = ROOT / name
    namespace: dict[str, Any] = {"__name__": "__main__"}
    monkeypatch.chdir(tmp_path)
    for variable in ("NAMESRV_ADDR", "BROKER", "ROCKETLINE_CONFIG"):
        monkeypatch.setenv(variable, "set by the document")  # and taken back afterwards
    try:
        for kind, block in blocks(document):
            if kind == "sh":
                await run_commands(block, capsys)
                continue
            code = compile(block, str(document), "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
            result = eval(code, namespace)
            if inspect.isawaitable(result):
                await result
    finally:
        if (stack := namespace.get("stack")) is not None:
            await stack.aclose()


async def run_commands(block: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Every command of a block ends with exit code 0, or as its comment says."""
    for line in filter(None, map(str.strip, block.splitlines())):
        command, _, comment = line.partition("# ")
        program, *arguments = shlex.split(os.path.expandvars(command))
        assert program == "rocketline"
        expected = re.search(r"exit code (\d)", comment)
        # In a thread: the cluster it asks runs on this one's event loop.
        exit_code = await asyncio.to_thread(main, arguments)
        said = capsys.readouterr()
        assert exit_code == (int(expected[1]) if expected else 0), (line, said.err)
        assert said.out or exit_code, line


class Terminals:
    """Where the tutorial is followed: a folder with its programs, one terminal for the broker, one for a consumer.

    A block of Python is saved under the name in its first line. A block of output says what the command before it prints;
    `...` in it stands for anything, and lines may come in another order, because queues are read side by side. The words
    "with Ctrl-C" end the consumer, or the broker when no consumer runs.
    """

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        self._folder = folder
        self._stack = stack
        self._programs: dict[str, str] = {}
        self._namesrv = ""
        self._broker: subprocess.Popen[str] | None = None
        self._consumer: subprocess.Popen[str] | None = None

    def save(self, program: str) -> None:
        self._programs[program.partition("\n")[0].removeprefix("# ")] = program

    def run(self, command: str, expected: list[str]) -> None:
        words = shlex.split(command)
        if words[:2] == ["rocketline", "up"]:
            self._broker = self._start(["-m", *words, "--namesrv-port", "0", "--broker-port", "0"])
            (ready,) = first_lines(self._broker, 1)
            (self._namesrv,) = re.findall(r"ready namesrv=(\S+) brokers=broker-a@\S+", ready)
        elif words[0] == "rocketline":
            self._finish(["-m", *words], expected)
        else:
            program = self._programs[words[1]]
            (self._folder / words[1]).write_text(program.replace("127.0.0.1:9876", self._namesrv))
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
        environment = cli_environment() | {"NAMESRV_ADDR": self._namesrv}
        command = [sys.executable, *arguments]
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


def test_the_tutorial_runs_as_a_newcomer_runs_it(tmp_path: Path) -> None:
    parts = re.split(r"^```(\w*)\n(.*?)^```\n", TUTORIAL.read_text("utf-8"), flags=re.DOTALL | re.MULTILINE)
    prose, kinds, texts = parts[::3], parts[1::3], parts[2::3]
    with ExitStack() as stack:
        terminals = Terminals(tmp_path, stack)
        for number, (before, kind, block) in enumerate(zip(prose, kinds, texts)):
            for _ in range(before.count("with Ctrl-C")):
                terminals.interrupt()
            if kind == "python":
                terminals.save(block)
            elif kind == "sh":
                has_output = kinds[number + 1 : number + 2] == ["text"] and not prose[number + 1].strip()
                terminals.run(block.strip(), texts[number + 1].splitlines() if has_output else [])


@lru_cache
def defined_in(path: Path) -> frozenset[str]:
    """`name` and `Class.name` of everything a module defines at its top and in its classes."""
    found = set()
    for node in ast.parse(path.read_text("utf-8")).body:
        for name in _names(node):
            found.add(name)
            if isinstance(node, ast.ClassDef):
                found.update(f"{name}.{inner}" for item in node.body for inner in _names(item))
    return frozenset(found)


def _names(node: ast.stmt) -> list[str]:
    if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
        return [node.name]
    targets = node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
    return [target.id for target in targets if isinstance(target, ast.Name)]


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_names_inside_modules_exist(document: Path) -> None:
    named = re.findall(r"`((?:\w+/)*\w+\.py):([A-Za-z_][\w.]*)`", document.read_text("utf-8"))
    examples = {("file.py", "name")}  # how to read such a name
    missing = [
        f"{file}:{name}"
        for file, name in named
        if (file, name) not in examples and not ((SOURCE / file).is_file() and name in defined_in(SOURCE / file))
    ]
    assert missing == []


def test_the_walk_names_functions() -> None:
    """The check above has something to look at."""
    assert len(re.findall(r"\.py:\w", WALK.read_text("utf-8"))) > 20


def test_the_numbers_of_the_walk_are_the_defaults() -> None:
    _, _, part = WALK.read_text("utf-8").partition("\n## Numbers\n")
    part, _, _ = part.partition("\n## ")
    rows = re.findall(r"^\| (`.+`) \| `([\w.]+)` \| (\S+) \|$", part, flags=re.MULTILINE)
    assert len(rows) > 20
    parameters = inspect.signature(PushConsumer).parameters
    kinds = {
        kind.__name__: {item.name: item for item in fields(kind)} for kind in (ClientTiming, PullSettings, Ordering)
    }
    for theirs, ours, default in rows:
        kind, _, name = ours.rpartition(".")
        found = kinds[kind][name] if kind else parameters[name]
        assert found.default == ast.literal_eval(default), ours
        if kind == "ClientTiming":
            assert f"`{found.metadata['key']}`" == theirs, ours


def test_the_strategies_of_the_walk_are_all_there_are() -> None:
    from rocketline.client.consumer.group import assignment

    named = set(re.findall(r"^\| [A-Z_]+ \| `(\w+)` \|", WALK.read_text("utf-8"), flags=re.MULTILINE))
    assert named == {
        "allocate_averagely", "allocate_by_circle", "consistent_hash", "by_config", "by_machine_room",
        "machine_room_nearby",
    }  # fmt: skip
    assert all(callable(getattr(assignment, name)) for name in named)
