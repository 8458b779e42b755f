"""What is installed and shipped: dependencies, the version, the page of a package index, the container files."""

from __future__ import annotations

import json
import os
import re
import runpy
import shutil
import subprocess
import sys
import tomllib
import zipfile
from fnmatch import fnmatch
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from tests.support.patience import PATIENCE_S

import rocketline
from rocketline.auth.posture import networks_of
from rocketline.broker import BrokerConfig
from rocketline.cli.entry import EXTRA_PACKAGES
from rocketline.cli.servers.config_sources import variable_of
from rocketline.cli.servers.console_server import console_parser
from rocketline.cli.servers.flags import parser_of, read_flags
from rocketline.client import blocking
from rocketline.errors import RocketlineError
from rocketline.message import Message
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


def test_what_is_installed_for_tests_has_one_version_that_is_allowed() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    asked = [Requirement(text) for texts in project["optional-dependencies"].values() for text in texts]
    asked += [Requirement(text) for text in project["dependencies"]]
    lines = [line for line in (ROOT / "tools" / "versions.txt").read_text("utf-8").splitlines() if line[:1] != "#"]
    given = {canonicalize_name(name): version for name, version in (line.split("==") for line in lines)}
    assert len(given) == len(lines)
    wrong = [
        f"{requirement}: {given.get(canonicalize_name(requirement.name))}"
        for requirement in asked
        if requirement.name != "rocketline"
        and not requirement.specifier.contains(given.get(canonicalize_name(requirement.name), "0"))
    ]
    assert not wrong, f"`make versions` writes tools/versions.txt anew: {wrong}"


# The page of a package index


def test_no_link_of_the_page_leads_into_the_repository() -> None:
    build = runpy.run_path(str(ROOT / "hatch_build.py"))
    page = build["without_local_links"]((ROOT / "README.md").read_text("utf-8"))
    assert [target for target in re.findall(r"\]\(([^)]*)\)", page) if not target.startswith("https://")] == []
    assert "[" not in re.sub(r"```.*?```|`[^`]*`", "", page, flags=re.DOTALL)


# Containers


def let_through(rules: list[str], path: str) -> bool:
    """Whether a file is part of the context of a build: the last rule that fits decides, as Docker has it."""
    let = True
    for rule in rules:
        pattern, keeps = rule.removeprefix("!"), rule.startswith("!")
        if pattern.startswith("**/"):
            fits = any(fnmatch(part, pattern[3:]) for part in path.split("/"))
        else:
            fits = any(fnmatch("/".join(path.split("/")[:count]), pattern) for count in range(1, path.count("/") + 2))
        let = keeps if fits else let
    return let


def build_context(folder: Path) -> Path:
    """The files of this repository that a container is built from."""
    rules = [line for line in (ROOT / ".dockerignore").read_text("utf-8").splitlines() if line]
    for place, below, names in os.walk(ROOT):
        below[:] = [name for name in below if not name.startswith(".")]
        for name in names:
            path = Path(place, name).relative_to(ROOT)
            if let_through(rules, path.as_posix()):
                (folder / path).parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(ROOT / path, folder / path)
    return folder


def test_a_wheel_can_be_built_from_what_the_image_gets(tmp_path: Path) -> None:
    pytest.importorskip("hatchling")
    context = build_context(tmp_path / "source")
    assert not (context / "tests").exists()
    assert list((context / "native").glob("**/*.c")), "the image has compiled code"
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)]
    environment = {**os.environ, "ROCKETLINE_BUILD": "python"}
    done = subprocess.run(
        command, cwd=context, env=environment, capture_output=True, text=True, timeout=PATIENCE_S, check=False
    )
    assert done.returncode == 0, done.stderr
    (wheel,) = tmp_path.glob("*.whl")
    names = set(zipfile.ZipFile(wheel).namelist())
    wanted = {path.relative_to(ROOT).as_posix() for path in (ROOT / "examples").glob("*.py")}
    assert {f"rocketline/{name}" for name in wanted} <= names
    assert {"rocketline/py.typed", "rocketline/cli/entry.py"} <= names


def image_environment() -> dict[str, str]:
    text = (ROOT / "Containerfile").read_text("utf-8").replace("\\\n", " ")
    return dict(re.findall(r"(ROCKETLINE_(?!BUILD)\w+)=(\S+)", text))


def test_the_image_sets_what_there_are_settings_for() -> None:
    keys = {variable_of(item.key): item.key for item in describe(BrokerConfig) if item.key}
    config, unknown = load(BrokerConfig, {keys[name]: value for name, value in image_environment().items()})
    assert (unknown, config.bind_host, config.store_root) == ([], "0.0.0.0", "/data")
    assert int(health_check()[-1]) == config.metrics.port


def health_check() -> list[str]:
    (words,) = re.findall(r"^HEALTHCHECK .* CMD (\[.*\])$", (ROOT / "Containerfile").read_text("utf-8"), re.MULTILINE)
    command: list[str] = json.loads(words)
    return command


def test_the_image_starts_by_itself_and_lets_nobody_in_without_an_account(tmp_path: Path) -> None:
    (words,) = re.findall(r"^CMD (\[.*\])$", (ROOT / "Containerfile").read_text("utf-8"), re.MULTILINE)
    ports = ["--namesrv-port", "0", "--broker-port", "0", "--metrics-port", "0"]
    data = {"ROCKETLINE_STORE_PATH_ROOT_DIR": str(tmp_path), "PYTHONPATH": str(ROOT / "src")}
    environment = {**os.environ, **image_environment(), **data}
    command = [sys.executable, "-m", "rocketline", *json.loads(words), *ports]
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True, cwd=tmp_path) as image:
        assert image.stdout is not None
        try:
            ready = image.stdout.readline()
            found = re.search(r"namesrv=(\S+) .* metrics=\S+:(\d+)", ready)
            assert found is not None, ready
            asks = [sys.executable, *health_check()[1:-1], found[2]]
            healthy = subprocess.run(asks, env=environment, cwd=tmp_path, capture_output=True, text=True)
            assert (healthy.returncode, healthy.stdout) == (0, "ok\n"), healthy.stderr
            with pytest.raises(RocketlineError), blocking.Producer(found[1], group="stranger", timeout=1.0) as stranger:
                stranger.send(Message("T", b"x"))
        finally:
            image.terminate()
            image.stdout.read()
    assert image.returncode == 0
    assert json.loads((tmp_path / "admin.json").read_text())["accessKey"] == "admin"


def test_the_image_has_the_extras_that_its_commands_need() -> None:
    text = (ROOT / "Containerfile").read_text("utf-8")
    installed = re.findall(r"(?:/source|rocketline)\[([\w,]+)\]", text)
    assert len(installed) == 2
    assert set(installed) == {"cli,console,certs,grpc"}


def test_the_servers_of_the_compose_file_understand_their_flags() -> None:
    yaml = pytest.importorskip("yaml")
    services: dict[str, Any] = yaml.safe_load((ROOT / "compose.yaml").read_text("utf-8"))["services"]
    for service in ("namesrv", "broker"):
        name, *flags = [re.sub(r"\$\{\w+:-(.*?)\}", r"\1", word) for word in services[service]["command"]]
        common, _ = read_flags(parser_of(name), flags)
        assert common.settings
        networks = networks_of(dict(setting.split("=", 1) for setting in common.settings)["rocketline.adminFrom"])
        for address in ("172.18.0.3", "10.88.0.3", "10.89.1.3"):  # Docker's networks, Podman's
            assert any(ip_address(address) in network for network in networks), address
    name, *flags = services["console"]["command"]
    made = console_parser().parse_args(flags)
    assert (made.host, str(made.users)) == ("0.0.0.0", "/data/users.json")
    for volume in services["prometheus"]["volumes"] + services["grafana"]["volumes"]:
        source = volume.partition(":")[0]
        assert not source.startswith(".") or (ROOT / source).exists(), source
