"""`tools/suite`: few tests that failed beside others and pass alone are named, and are no failure; a crash always is one."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

SUITE = Path(__file__).parents[2] / "tools" / "suite"

RACE = """
import pytest
from pathlib import Path

@pytest.fixture(scope="module")
def shared():
    first = Path(__file__).with_suffix(".ran")
    if not first.exists():
        first.touch()
        raise RuntimeError("not settled yet")

@pytest.mark.xdist_group("lane 1")
@pytest.mark.parametrize("number", range({tests}))
def test_shared(shared, number):
    pass
"""
LOSES_A_RACE = RACE.replace("{tests}", "3")
LOSES_MANY = RACE.replace("{tests}", "4")
IS_BROKEN = "def test_broken():\n    assert False\n"
CRASHES_ONCE = """
import os
import signal
from pathlib import Path

def test_compiled():
    first = Path(__file__).with_suffix(".ran")
    if not first.exists():
        first.touch()
        os.kill(os.getpid(), signal.SIGKILL)
"""
IS_SOUND = "def test_sound():\n    pass\n"


def suite(folder: Path, files: dict[str, str], *arguments: str) -> subprocess.CompletedProcess[str]:
    for name, text in files.items():
        (folder / f"test_{name}.py").write_text(text)
    (folder / "pytest.ini").write_text("[pytest]\nmarkers = xdist_group\n")
    environment = {**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTEST_ADDOPTS": ""}
    command = [sys.executable, str(SUITE), "-q", *arguments]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("arguments", [[], ["-p", "xdist", "-n", "1", "--dist", "loadgroup"]], ids=["plain", "groups"])
def test_tests_that_lost_a_race_together_are_named_and_no_failure(tmp_path: Path, arguments: list[str]) -> None:
    done = suite(tmp_path, {"racing": LOSES_A_RACE, "sound": IS_SOUND}, *arguments)
    assert done.returncode == 0, done.stdout
    assert "Again, alone: test_racing.py" in done.stdout
    assert "FORGIVEN: 3 failed" in done.stdout
    for number in range(3):
        assert f"==>     test_racing.py::test_shared[{number}]\n" in done.stdout


def test_what_also_fails_alone_is_a_failure(tmp_path: Path) -> None:
    done = suite(tmp_path, {"racing": LOSES_A_RACE, "broken": IS_BROKEN})
    assert done.returncode == 1
    assert "please mend" not in done.stdout


def test_failures_in_many_files_are_a_failure_whatever_they_do_alone(tmp_path: Path) -> None:
    done = suite(tmp_path, {f"racing{number}": LOSES_A_RACE for number in range(4)})
    assert done.returncode == 1
    assert "tests of 4 files failed" in done.stdout
    assert "Again" not in done.stdout


def test_many_failures_in_one_file_are_a_failure_whatever_they_do_alone(tmp_path: Path) -> None:
    done = suite(tmp_path, {"racing": LOSES_MANY})
    assert done.returncode == 1
    assert "4 tests failed" in done.stdout
    assert "Again" not in done.stdout


@pytest.mark.parametrize("others", [{}, {"racing": LOSES_A_RACE}], ids=["alone", "beside a lost race"])
@pytest.mark.parametrize("arguments", [[], ["-p", "xdist", "-n", "1"]], ids=["plain", "a worker"])
def test_a_crash_is_a_failure_whatever_it_does_alone(
    tmp_path: Path, others: dict[str, str], arguments: list[str]
) -> None:
    done = suite(tmp_path, {"crashing": CRASHES_ONCE} | others, *arguments)
    assert done.returncode == 1, done.stdout
    assert "FORGIVEN" not in done.stdout
    assert "Again" not in done.stdout


def test_other_ends_of_pytest_are_passed_on(tmp_path: Path) -> None:
    done = suite(tmp_path, {"wrong": "import nothing_of_this_name\n"})
    assert done.returncode == 2
    assert "Again" not in done.stdout
