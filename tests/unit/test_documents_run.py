"""Documents that are programs: their blocks run from top to bottom in one namespace, and can be typed line by line into
`python -m asyncio`; their commands in between as in a shell; the tutorial runs as a newcomer runs it, with files and
terminals; and the names and numbers that documents state are those of the code."""

from __future__ import annotations

import ast
import asyncio
import inspect
import os
import re
import shlex
import subprocess
import sys
from codeop import CommandCompiler
from contextlib import ExitStack
from dataclasses import fields
from functools import lru_cache
from pathlib import Path
from typing import Any

import pytest
from tests.support.documents import Terminals, blocks, steps

from rocketline.cli.entry import main
from rocketline.cli.servers.child import cli_environment
from rocketline.client import ClientTiming, Ordering, PullSettings, PushConsumer
from rocketline.testing import LocalCluster

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


@pytest.mark.parametrize("name", RUNNING)
async def test_a_document_runs_from_top_to_bottom(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    document = ROOT / name
    namespace: dict[str, Any] = {"__name__": "__main__"}
    monkeypatch.chdir(tmp_path)
    for variable in ("NAMESRV_ADDR", "BROKER", "ROCKETLINE_CONFIG", "ROCKETLINE_CREDENTIALS_FILE"):
        monkeypatch.setenv(variable, "set by the document")  # and taken back afterwards
    del os.environ["ROCKETLINE_CREDENTIALS_FILE"]  # every command would read it
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


def type_in(block: str, name: str) -> None:
    """Compile it line by line as `python -m asyncio` does: a blank line ends what is indented, and is needed after it."""
    compiler = CommandCompiler()
    compiler.compiler.flags |= ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
    typed: list[str] = []
    for number, line in enumerate([*block.splitlines(), ""], 1):
        typed.append(line)
        try:
            is_complete = compiler("\n".join(typed), name, "single") is not None
        except SyntaxError as error:
            pytest.fail(f"{name}:{number}: {error.msg}", pytrace=False)
        if is_complete:
            typed.clear()
    assert not "".join(typed).strip(), f"{name}: the last statement is not complete"


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_programs_can_be_typed_line_by_line(document: Path) -> None:
    for kind, block in blocks(document):
        if kind == "python":
            type_in(block, str(document.relative_to(ROOT)))


def test_the_program_of_the_readme_runs_in_the_console_of_asyncio() -> None:
    program = next(block for kind, block in blocks(ROOT / "README.md") if "asyncio.run(main())" in block)
    with LocalCluster() as cluster:
        typed = (
            program.strip().replace("127.0.0.1:9876", cluster.namesrv).replace("asyncio.run(main())", "await main()")
        )
        command = [sys.executable, "-u", "-m", "asyncio"]
        pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
        with subprocess.Popen(command, text=True, env=cli_environment(), **pipes) as process:
            assert process.stdin is not None and process.stdout is not None
            process.stdin.write(typed + "\n")
            process.stdin.flush()
            said = []
            for line in process.stdout:
                said.append(line)
                if "got b'an order'" in line or "Error" in line:
                    break
            process.kill()
    assert "got b'an order'" in said[-1], said


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


def test_the_tutorial_runs_as_a_newcomer_runs_it(tmp_path: Path) -> None:
    with ExitStack() as stack:
        terminals = Terminals(tmp_path, stack, sys.executable, cli_environment())
        for step in steps(TUTORIAL):
            step.follow(terminals)


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
