"""`rocketline completion`: the suggestions of the scripts, tested in the shells."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.support.patience import PATIENCE_S

from rocketline.cli import verbs
from rocketline.cli.completion import SHELLS, all_words, script
from rocketline.cli.verb import VERBS

Called = Callable[..., Any]

LINES = [
    (["ad"], {"admin"}, {"up"}),
    (["admin", "topicSt"], {"topicStatus"}, {"topicList"}),
    (["admin", "topic-st"], {"topic-status"}, {"topicStatus"}),
    (["admin", "topicStatus", "--to"], {"--topic"}, {"--watch"}),
    (["admin", "topicStatus", "-t", "orders", "--wa"], {"--watch"}, {"--topic"}),
    (["admin", "lag", "--output", ""], {"table", "json", "csv"}, {"--topic"}),
    (["store", "ver"], {"verify"}, {"dump"}),
    (["up", "--da"], {"--data"}, {"admin"}),
]


def offered_by_bash(text: str, words: list[str]) -> set[str]:
    asked = " ".join(f"'{word}'" for word in ["rocketline", *words])
    program = (
        f"{text}\nCOMP_WORDS=({asked}); COMP_CWORD={len(words)}; _rocketline; printf '%s\\n' \"${{COMPREPLY[@]}}\""
    )
    return _lines(["bash", "--norc"], program)


def offered_by_zsh(text: str, words: list[str]) -> set[str]:
    asked = " ".join(f"'{word}'" for word in ["rocketline", *words])
    # Outside of its line editor zsh completes nothing, so what it would be given is shown instead.
    shown = "compdef() { :; }; _describe() { print -l -- ${_rocketline_found%%:*}; }"
    program = f"{shown}\n{text}\nwords=({asked}); CURRENT={len(words) + 1}; _rocketline"
    return {word for word in _lines(["zsh", "-f"], program) if word.startswith(words[-1])}


def offered_by_fish(text: str, words: list[str]) -> set[str]:
    line = " ".join(["rocketline", *words])
    program = f"{text}\ncomplete -C '{line}'"
    return {found.partition("\t")[0] for found in _lines(["fish", "--no-config"], program)}


def _lines(shell: list[str], program: str) -> set[str]:
    """What a program prints, which comes in a file: it is longer than an argument may be."""
    if shutil.which(shell[0]) is None:
        pytest.skip(f"{shell[0]} is not installed")
    with tempfile.NamedTemporaryFile("w") as file:
        file.write(program)
        file.flush()
        command = [*shell, file.name]
        done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, stdin=subprocess.DEVNULL)
    assert (done.returncode, done.stderr) == (0, "")
    return set(done.stdout.split("\n")) - {""}


OFFERED = {"bash": offered_by_bash, "zsh": offered_by_zsh, "fish": offered_by_fish}


@pytest.mark.parametrize("shell", SHELLS)
@pytest.mark.parametrize(("words", "there", "not_there"), LINES, ids=[" ".join(line[0]) for line in LINES])
def test_what_a_shell_offers(shell: str, words: list[str], there: set[str], not_there: set[str]) -> None:
    found = OFFERED[shell](script(shell), words)
    assert there <= found
    assert not_there & found == set()


def test_every_command_verb_and_flag_is_in_it() -> None:
    assert verbs.__all__
    words = all_words()
    assert {"admin", "up", "store", "completion"} <= {word.text for word in words[""]}
    for verb in VERBS.values():
        assert {verb.name, verb.kebab, *verb.aliases} <= {word.text for word in words["admin"]}
        flags = {word.text for word in words[f"admin {verb.name}"]}
        assert {"--output", "--watch", *(f"--{flag.name}" for flag in verb.flags)} <= flags


def test_nothing_in_a_script_is_taken_for_more_than_a_word() -> None:
    texts = [text for words in all_words().values() for word in words for text in (word.text, word.help)]
    assert [text for text in texts if set(text) & set("'\"`$\\!:\n")] == []


def test_it_is_printed(called: Called) -> None:
    result = called("completion", "bash")
    assert (result.returncode, result.stdout) == (0, script("bash"))


def test_an_unknown_shell_is_one_line_and_exit_code_2(called: Called) -> None:
    result = called("completion", "csh")
    assert result.returncode == 2
    assert "bash, zsh, fish are known" in result.stderr


def test_the_scripts_need_no_python_to_complete(tmp_path: Path) -> None:
    program = (
        f"{script('bash')}\nCOMP_WORDS=(rocketline admin lag --o); COMP_CWORD=3; _rocketline; echo ${{COMPREPLY[@]}}"
    )
    bash = shutil.which("bash")
    if bash is None:
        pytest.skip("bash is not installed")
    done = subprocess.run(
        [bash, "--norc", "-c", program], capture_output=True, text=True, env={**os.environ, "PATH": str(tmp_path)}
    )
    assert done.stdout == "--output\n"
