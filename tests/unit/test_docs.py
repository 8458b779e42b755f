"""The documents tell the truth: what they name exists, their programs run, and generated pages are current."""

from __future__ import annotations

import ast
import asyncio
import re
import runpy
import subprocess
import sys
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import Any

import pytest

from rocketline import RocketlineError, client, errors, testing
from rocketline.broker.config import BrokerConfig
from rocketline.cli.servers.child import cli_environment
from rocketline.nameserver import NameServerConfig
from rocketline.settings import describe
from rocketline.testing import LocalCluster

ROOT = Path(__file__).parents[2]
TRACEABILITY = ROOT / "tests" / "traceability.md"
DOCUMENTS = sorted(
    path for pattern in ("*.md", "docs/**/*.md", "bench/*.md", "tests/**/*.md") for path in ROOT.glob(pattern)
)
MAP = ROOT / "docs" / "README.md"
ARCHITECTURE = ROOT / "ARCHITECTURE.md"
LONGEST_LINE = 140
"""Of a document, outside of tables."""
DEFAULT_NAMESRV = "127.0.0.1:9876"
TOP_LEVEL_AWAIT = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT


def name_of(path: Path) -> str:
    return str(path.relative_to(ROOT))


# tests/traceability.md


def rows() -> list[list[str]]:
    """The cells of every row: number, mechanism, where, shown by, state."""
    lines = TRACEABILITY.read_text("utf-8").splitlines()
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines if re.match(r"\| [AB]\d+ ", line)]


def quoted(cell: str) -> list[str]:
    return re.findall(r"`([^`]+)`", cell)


@lru_cache
def named_in(path: Path) -> frozenset[str]:
    """`test` and `Class::test` of a test file."""
    found = set()
    for node in ast.parse(path.read_text("utf-8")).body:
        inner = [(f"{node.name}::", item) for item in node.body] if isinstance(node, ast.ClassDef) else [("", node)]
        for prefix, item in inner:
            if isinstance(item, ast.FunctionDef | ast.AsyncFunctionDef):
                found.add(prefix + item.name)
    return frozenset(name for name in found if name.rpartition("::")[2].startswith("test"))


def test_every_decision_is_in_the_list() -> None:
    listed = set(re.findall(r"\(decisions/([\w-]+\.md)\)", (ROOT / "docs" / "README.md").read_text("utf-8")))
    assert listed == {path.name for path in (ROOT / "docs" / "decisions").glob("*.md")}


def test_every_mechanism_has_its_row() -> None:
    every = [f"B{number}" for number in range(1, 240)] + [f"A{number}" for number in range(1, 277)]
    assert [row[0] for row in rows()] == every
    assert all(len(row) == 5 for row in rows())


def test_every_test_that_shows_a_mechanism_exists() -> None:
    missing = []
    for number, _, _, shown_by, _ in rows():
        for name in quoted(shown_by):
            file, _, test = name.partition("::")
            path = ROOT / "tests" / file
            if not path.is_file() or test not in named_in(path):
                missing.append(f"{number}: {name}")
    assert not missing


def test_every_module_of_a_mechanism_exists() -> None:
    named = [(row[0], module) for row in rows() for module in quoted(row[2])]
    assert [item for item in named if not (ROOT / "src" / "rocketline" / item[1]).is_file()] == []


def test_what_is_built_has_a_place_and_a_test() -> None:
    for number, _, where, shown_by, state in rows():
        assert state in ("built", "partly", "not yet"), number
        if state != "not yet":
            assert quoted(where), number
            assert quoted(shown_by), number


def test_the_rows_are_counted() -> None:
    counts = Counter(row[4] for row in rows())
    said = f"Today: {counts['built']} built, {counts['partly']} partly, {counts['not yet']} not yet."
    assert said in TRACEABILITY.read_text("utf-8")


@pytest.mark.parametrize("document", DOCUMENTS, ids=name_of)
def test_files_named_with_their_folder_exist(document: Path) -> None:
    named = re.findall(r"`((?:\w+/)+\w+\.py)`", document.read_text("utf-8"))
    assert [
        name for name in named if not any((base / name).is_file() for base in (ROOT, ROOT / "src/rocketline"))
    ] == []


# ARCHITECTURE.md


def test_modules_in_the_architecture_exist() -> None:
    """Those named without a folder; the others are looked for above."""
    there = {path.name for path in (ROOT / "src").rglob("*.py")}
    assert sorted(set(re.findall(r"`(\w+\.py)`", ARCHITECTURE.read_text("utf-8"))) - there) == []


def test_classes_in_the_architecture_exist() -> None:
    """`Class` and `Class.method`."""
    named = set(re.findall(r"`([A-Z]\w*[a-z]\w*(?:\.\w+)?)`", ARCHITECTURE.read_text("utf-8")))
    there = set()
    for path in (ROOT / "src").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.ClassDef):
                methods = {item.name for item in node.body if isinstance(item, ast.FunctionDef | ast.AsyncFunctionDef)}
                there |= {node.name, *(f"{node.name}.{name}" for name in methods)}
    assert sorted(named - there) == []


def test_the_map_of_the_architecture_has_every_package() -> None:
    text = ARCHITECTURE.read_text("utf-8")
    packages = {path.parent.name for path in (ROOT / "src").glob("rocketline/*/**/__init__.py")}
    details = {"sql92", "sim"}
    assert sorted(name for name in packages - details if f"{name}/" not in text) == []


# docs/reference/config.md


def test_the_reference_of_settings_is_what_its_tool_writes() -> None:
    tool = runpy.run_path(str(ROOT / "tools" / "write_config_reference.py"))
    page = (ROOT / "docs" / "reference" / "config.md").read_text("utf-8")
    assert page == tool["page"](), "run: python tools/write_config_reference.py"


def test_the_reference_of_the_console_is_what_its_tool_writes() -> None:
    tool = runpy.run_path(str(ROOT / "tools" / "write_console_reference.py"))
    page = (ROOT / "docs" / "reference" / "console.md").read_text("utf-8")
    assert page == tool["page"](), "run: python tools/write_console_reference.py"


def test_the_reference_of_clients_is_what_its_tool_writes() -> None:
    """In a process of its own: tests raise some of the defaults that the page shows."""
    program = "import runpy; print(runpy.run_path('tools/write_client_reference.py')['page'](), end='')"
    command = [sys.executable, "-c", program]
    written = subprocess.run(command, cwd=ROOT, env=cli_environment(), capture_output=True, text=True, check=True)
    page = (ROOT / "docs" / "reference" / "clients.md").read_text("utf-8")
    assert page == written.stdout, "run: python tools/write_client_reference.py"


def test_the_reference_of_clients_has_every_name() -> None:
    page = (ROOT / "docs" / "reference" / "clients.md").read_text("utf-8")
    assert [name for name in (*client.__all__, *testing.__all__) if f"\n### {name}\n" not in page] == []
    kinds = [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, RocketlineError)]
    assert kinds and [kind.__name__ for kind in kinds if f"| `{kind.__name__}` |" not in page] == []


def test_the_pictures_are_what_their_tool_draws() -> None:
    drawn = runpy.run_path(str(ROOT / "tools" / "pictures"))["drawn"]()
    assert {path.stem for path in drawn} == {path.stem for path in (ROOT / "docs" / "images").glob("*.svg")}
    for path, svg in drawn.items():
        assert path.with_suffix(".svg").read_text("utf-8") == svg, "run: tools/pictures"


@pytest.mark.parametrize("kind", [BrokerConfig, NameServerConfig])
def test_the_reference_has_every_setting_once(kind: type[Any]) -> None:
    page = (ROOT / "docs" / "reference" / "config.md").read_text("utf-8")
    broker, name_server = page.split("\n## Name server\n")
    part = broker if kind is BrokerConfig else name_server
    for setting in describe(kind):
        assert part.count(f"| `{setting.key}` |" if setting.key else f"| (`{setting.name}`) |") == 1, setting


# Links


def links(text: str) -> list[str]:
    outside_of_code = re.sub(r"```.*?```|`[^`\n]*`", "", text, flags=re.DOTALL)
    return re.findall(r"\]\(([^)\s]+)\)", outside_of_code)


@lru_cache
def anchors(document: Path) -> frozenset[str]:
    """What a link into a document may name: its headings, as they appear in addresses."""
    text = re.sub(r"^```.*?^```", "", document.read_text("utf-8"), flags=re.DOTALL | re.MULTILINE)
    headings = re.findall(r"^#+ (.+)$", text, flags=re.MULTILINE)
    return frozenset(re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings)


@pytest.mark.parametrize("document", DOCUMENTS, ids=name_of)
def test_links_lead_somewhere(document: Path) -> None:
    lost = []
    for link in links(document.read_text("utf-8")):
        file, _, anchor = link.partition("#")
        target = document.parent / file if file else document
        if "://" not in link and (not target.exists() or (anchor and anchor not in anchors(target.resolve()))):
            lost.append(link)
    assert lost == []


def test_the_map_of_the_documents_has_every_page() -> None:
    linked = {(MAP.parent / link.partition("#")[0]).resolve() for link in links(MAP.read_text("utf-8"))}
    pages = {path for path in (ROOT / "docs").rglob("*.md") if path != MAP and path.parent.name != "decisions"}
    assert pages - linked == set()


def test_pages_that_programs_name_exist() -> None:
    sources = [path for folder in ("src", "bench", "tools") for path in (ROOT / folder).rglob("*.py")]
    named = {
        (name_of(path), page) for path in sources for page in re.findall(r"\bdocs/[\w/-]+\.md", path.read_text("utf-8"))
    }
    assert sorted(item for item in named if not (ROOT / item[1]).is_file()) == []


@pytest.mark.parametrize("document", DOCUMENTS, ids=name_of)
def test_lines_are_short(document: Path) -> None:
    lines = enumerate(document.read_text("utf-8").splitlines(), 1)
    assert [n for n, line in lines if len(line) > LONGEST_LINE and not line.lstrip().startswith("|")] == []


def test_documents_use_one_word_for_one_thing() -> None:
    """Fast path, general path, compiled."""
    other_words = re.compile(r"(?<![\w/-])(lanes?|roads?|twins?)(?![\w.])", re.IGNORECASE)
    found = {name_of(path): other_words.findall(path.read_text("utf-8")) for path in DOCUMENTS}
    assert {name: words for name, words in found.items() if words} == {}


# Translations


@pytest.mark.parametrize("english", [ROOT / "README.md", ROOT / "docs" / "tutorial.md"], ids=name_of)
def test_a_translation_has_the_same_blocks(english: Path) -> None:
    """Code, commands and output; and the numbers in tables."""
    chinese = english.with_name(english.name.replace(".md", ".zh-CN.md"))
    texts = [path.read_text("utf-8") for path in (english, chinese)]
    blocks = [re.findall(r"^```.*?^```", text, flags=re.DOTALL | re.MULTILINE) for text in texts]
    assert blocks[0] == blocks[1]
    tables = ["\n".join(re.findall(r"^\|.*", text, flags=re.MULTILINE)) for text in texts]
    numbers = [[sorted(re.findall(r"\d(?:[\d,.]*\d)?", row)) for row in table.splitlines()] for table in tables]
    assert numbers[0] == numbers[1]


# Programs


def programs() -> dict[str, str]:
    """Every block marked as Python."""
    found: dict[str, str] = {}
    for document in DOCUMENTS:
        blocks = re.findall(r"^```python\n(.*?)^```", document.read_text("utf-8"), flags=re.DOTALL | re.MULTILINE)
        found |= {f"{name_of(document)} {number}": block for number, block in enumerate(blocks, 1)}
    return found


@pytest.mark.parametrize("name", programs())
def test_programs_compile_and_import_what_is_there(name: str) -> None:
    program = programs()[name]
    compile(program, name, "exec", flags=TOP_LEVEL_AWAIT)
    tree = compile(program, name, "exec", flags=TOP_LEVEL_AWAIT | ast.PyCF_ONLY_AST)
    imports: list[ast.stmt] = [node for node in ast.walk(tree) if isinstance(node, ast.Import | ast.ImportFrom)]
    exec(compile(ast.Module(imports, []), name, "exec"), {})


def readme_program(word: str) -> str:
    """The one program of the README that has a word in it."""
    (program,) = [text for name, text in programs().items() if name.startswith("README.md ") and word in text]
    return program


def test_the_cluster_of_the_readme_starts(capsys: pytest.CaptureFixture[str]) -> None:
    exec(compile(readme_program("LocalCluster"), "README.md", "exec"), {})
    assert re.fullmatch(r"127\.0\.0\.1:\d+\n", capsys.readouterr().out)


@contextmanager
def running(program: Path, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    """A program in a process of its own, ended at the end."""
    command = [sys.executable, "-u", str(program), *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=cli_environment()) as process:
        try:
            yield process
        finally:
            process.kill()


def lines_until(process: subprocess.Popen[str], done: Callable[[list[str]], bool]) -> list[str]:
    """What a program prints, up to the line that completes it; the test's time limit bounds the wait."""
    assert process.stdout is not None
    lines: list[str] = []
    for line in process.stdout:
        lines.append(line.rstrip("\n"))
        if done(lines):
            break
    return lines


def test_the_ten_lines_of_the_readme_send_and_receive(tmp_path: Path) -> None:
    text = readme_program("PushConsumer")
    assert DEFAULT_NAMESRV in text
    with LocalCluster() as cluster:
        program = tmp_path / "ten_lines.py"
        program.write_text(text.replace(DEFAULT_NAMESRV, cluster.namesrv))
        with running(program) as process:
            lines = lines_until(process, lambda lines: lines[-1].startswith("got"))
    assert re.fullmatch(r"stored at orders@broker-a:\d 0", lines[0])
    assert lines[1:] == ["got b'an order'"]


async def two_at_once(main: Callable[..., Awaitable[int]], *arguments: object) -> list[int]:
    return await asyncio.gather(main(*arguments), main(*arguments))


def test_the_examples_run_on_a_real_cluster(capsys: pytest.CaptureFixture[str]) -> None:
    """Together: one sends orders, one counts them, one watches them, and workers share them."""
    examples = ROOT / "examples"
    found = {path.name for path in examples.glob("*.py")}
    assert found == {"orders.py", "audit.py", "tail.py", "workers.py"}, "run the new one too"
    with LocalCluster() as cluster:
        orders = runpy.run_path(str(examples / "orders.py"))
        billed = asyncio.run(orders["main"](cluster.namesrv))
        assert sorted(billed) == ["1001 created", "1001 paid", "1002 created"]
        audit = runpy.run_path(str(examples / "audit.py"))
        expected = {"created": 2, "paid": 1, "cancelled": 1, "shipped": 1}
        assert audit["main"]("orders", cluster.namesrv) == expected
        assert audit["main"]("orders", cluster.namesrv) == {}, "the second run counts only what is new"
        workers = runpy.run_path(str(examples / "workers.py"))["main"]
        assert sum(asyncio.run(two_at_once(workers, "orders", cluster.namesrv, 1.0))) == len(orders["ORDERS"])
        with running(examples / "tail.py", "orders", cluster.namesrv) as process:
            lines = lines_until(process, lambda lines: len(lines) == len(orders["ORDERS"]))
    assert sorted(line.partition(": ")[2] for line in lines) == sorted(f"order {n} {s}" for n, s in orders["ORDERS"])
    assert "billing has seen 1001 paid" in capsys.readouterr().out
