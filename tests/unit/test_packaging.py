"""What is installed and shipped: dependencies, the version, the page of a package index, the container files."""

from __future__ import annotations

import os
import re
import runpy
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
from tests.support.patience import PATIENCE_S

import rocketline
from rocketline.broker import BrokerConfig
from rocketline.cli.entry import EXTRA_PACKAGES
from rocketline.cli.servers.config_sources import variable_of
from rocketline.cli.servers.flags import parser_of, read_flags
from rocketline.settings import describe, load

ROOT = Path(__file__).resolve().parents[2]
WITHOUT_CLI = """
import sys
for name in {missing!r}:
    sys.modules[name] = None
from rocketline.cli.entry import main
sys.exit(main(sys.argv[1:]))
"""


def run_without_cli(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", WITHOUT_CLI.format(missing=EXTRA_PACKAGES), *arguments]
    paths = os.pathsep.join([str(ROOT / "src"), os.environ.get("PYTHONPATH", "")])
    return subprocess.run(
        command,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
        env={**os.environ, "PYTHONPATH": paths, **environment},
    )


def names(requirements: list[str]) -> set[str]:
    return {re.split(r"[^\w.-]", text, maxsplit=1)[0] for text in requirements}


# Dependencies and the version


def test_the_core_has_no_packages_of_the_command_line() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    extras = project["optional-dependencies"]
    assert names(project["dependencies"]) == {"msgspec", "lz4", "backports.zstd", "uvloop"}
    assert names(extras["cli"]) == set(EXTRA_PACKAGES)


@pytest.mark.parametrize("arguments", [[], ["produce", "orders", "hello"], ["demo"]])
def test_a_command_that_needs_the_extra_names_it(arguments: list[str]) -> None:
    done = run_without_cli(*arguments)
    (line,) = done.stderr.splitlines()
    assert (done.returncode, "pip install 'rocketline[cli]'" in line) == (1, True)


@pytest.mark.parametrize("arguments", [["version"], ["--version"], ["admin", "--help"], ["broker", "--help"]])
def test_these_work_without_the_extra(arguments: list[str]) -> None:
    done = run_without_cli(*arguments)
    assert (done.returncode, done.stderr) == (0, "")


def test_the_version_says_what_runs() -> None:
    start = f"rocketline {rocketline.__version__}, pure Python, {sys.implementation.name}"
    assert run_without_cli("--version", ROCKETLINE_IMPL="python").stdout.lower().startswith(start.lower())


# The page of a package index


def test_no_link_of_the_page_leads_into_the_repository() -> None:
    build = runpy.run_path(str(ROOT / "hatch_build.py"))
    page = build["without_local_links"]((ROOT / "README.md").read_text("utf-8"))
    assert [target for target in re.findall(r"\]\(([^)]*)\)", page) if not target.startswith("https://")] == []
    assert "[" not in re.sub(r"```.*?```|`[^`]*`", "", page, flags=re.DOTALL)


# Containers


def image_environment() -> dict[str, str]:
    text = (ROOT / "Containerfile").read_text("utf-8").replace("\\\n", " ")
    return dict(re.findall(r"(ROCKETLINE_(?!BUILD)\w+)=(\S+)", text))


def test_the_image_sets_what_there_are_settings_for() -> None:
    keys = {variable_of(item.key): item.key for item in describe(BrokerConfig) if item.key}
    config, unknown = load(BrokerConfig, {keys[name]: value for name, value in image_environment().items()})
    assert (unknown, config.bind_host, config.store_root) == ([], "0.0.0.0", "/data")
    health = re.search(r"127\.0\.0\.1:(\d+)/health", (ROOT / "Containerfile").read_text("utf-8"))
    assert health is not None
    assert int(health[1]) == config.metrics.port


def test_the_servers_of_the_compose_file_understand_their_flags() -> None:
    yaml = pytest.importorskip("yaml")
    services: dict[str, Any] = yaml.safe_load((ROOT / "compose.yaml").read_text("utf-8"))["services"]
    for service in ("namesrv", "broker"):
        name, *flags = [re.sub(r"\$\{\w+:-(.*?)\}", r"\1", word) for word in services[service]["command"]]
        common, _ = read_flags(parser_of(name), flags)
        assert common.settings
    for volume in services["prometheus"]["volumes"] + services["grafana"]["volumes"]:
        source = volume.partition(":")[0]
        assert not source.startswith(".") or (ROOT / source).exists(), source
