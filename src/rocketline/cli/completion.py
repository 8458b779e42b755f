"""Shell completion: a script for bash, zsh or fish with every command, verb and flag in it.

All words are in the script, so completing starts no Python. After an upgrade the script must be made again, which happens by
itself when a start-up file of the shell sources it.
"""

from __future__ import annotations

from argparse import SUPPRESS, ArgumentParser
from collections.abc import Iterator
from typing import Any, NamedTuple

SHELLS = ("bash", "zsh", "fish")
OUTPUTS = "table json csv"


class Word(NamedTuple):
    """A word that can be typed, and its help."""

    text: str
    help: str = ""


Words = dict[str, list[Word]]
"""Words by the words typed before them: commands after `""`, verbs after `"admin"`, flags after `"admin topicStatus"`."""


def all_words() -> Words:
    from typer.main import get_command

    from rocketline.cli.main import app
    from rocketline.cli.servers.console_server import console_parser

    table: Words = {}
    _add_commands(table, "", get_command(app))
    table["admin"] = list(_verbs())
    table["console"] += _flags(console_parser())
    return table | dict(_flags_of_servers()) | dict(_flags_of_verbs())


def _add_commands(table: Words, place: str, command: Any) -> None:
    inner = getattr(command, "commands", {})
    options = [Word(name, _line(option.help)) for option in command.params for name in _long_names(option)]
    table[place] = [Word(name, _line(item.get_short_help_str(100))) for name, item in inner.items()] + options
    for name, item in inner.items():
        _add_commands(table, f"{place} {name}".strip(), item)


def _long_names(option: Any) -> list[str]:
    return [name for name in option.opts if name.startswith("--")] if hasattr(option, "help") else []


def _verbs() -> Iterator[Word]:
    from rocketline.cli import verbs  # noqa: F401 (declares them)
    from rocketline.cli.verb import VERBS

    for verb in VERBS.values():
        for name in dict.fromkeys((verb.name, verb.kebab, *verb.aliases)):
            yield Word(name, _line(verb.help))


def _flags(parser: ArgumentParser) -> list[Word]:
    return [
        Word(name, _line(action.help))
        for action in parser._actions
        for name in action.option_strings
        if action.help != SUPPRESS and (name.startswith("--") or len(action.option_strings) == 1)
    ]


def _flags_of_servers() -> Iterator[tuple[str, list[Word]]]:
    from rocketline.cli.entry import SERVERS
    from rocketline.cli.servers.flags import parser_of

    for name in SERVERS:
        yield name, _flags(parser_of(name))


def _flags_of_verbs() -> Iterator[tuple[str, list[Word]]]:
    from rocketline.cli.verb import VERBS, parser_of

    for verb in VERBS.values():
        flags = _flags(parser_of(verb))
        for name in dict.fromkeys((verb.name, verb.kebab, *verb.aliases)):
            yield f"admin {name}", flags


def _line(text: str | None) -> str:
    """A help text on one line, without characters that mean something to a shell."""
    kept = "".join(char if char.isalnum() or char in " .,;-/()" else " " for char in text or "")
    return " ".join(kept.split())


def script(shell: str) -> str:
    return {"bash": _bash, "zsh": _zsh, "fish": _fish}[shell](all_words())


def _cases(words: Words, form: str, joint: str = " ") -> str:
    """The cases of a shell function, one for each place; `form` is the format of a word."""
    return "\n".join(
        f'        "{place}") set -- '
        + joint.join(form.format(text=word.text, help=word.help or word.text) for word in found)
        + " ;;"
        for place, found in words.items()
    )


# Finds the commands and verbs typed so far; flags and their values are passed over.
FIND = """    local place="" next i
    for ((i = {first}; i < {last}; i++)); do
        next="${{place:+$place }}${{{words}[i]}}"
        if _rocketline_words "$next"; then place="$next"; fi
    done"""

COMMON = """_rocketline_words() {{
    case "$1" in
{cases}
        *) return 1 ;;
    esac
    _rocketline_found=("$@")
}}
"""


def _bash(words: Words) -> str:
    return f"""# rocketline completion for bash: source <(rocketline completion bash)
{COMMON.format(cases=_cases(words, "{text}"))}
_rocketline() {{
    local _rocketline_found
{FIND.format(first="1", last="COMP_CWORD", words="COMP_WORDS")}
    _rocketline_words "$place"
    if [[ ${{COMP_WORDS[COMP_CWORD - 1]}} =~ ^(-o|--output)$ ]]; then _rocketline_found=({OUTPUTS}); fi
    COMPREPLY=($(compgen -W "${{_rocketline_found[*]}}" -- "${{COMP_WORDS[COMP_CWORD]}}"))
}}
complete -o default -F _rocketline rocketline
"""


def _zsh(words: Words) -> str:
    return f"""#compdef rocketline
# rocketline completion for zsh: source <(rocketline completion zsh)
{COMMON.format(cases=_cases(words, "'{text}:{help}'"))}
_rocketline() {{
    local -a _rocketline_found
{FIND.format(first="2", last="CURRENT", words="words")}
    _rocketline_words "$place"
    if [[ ${{words[CURRENT - 1]}} =~ ^(-o|--output)$ ]]; then _rocketline_found=({OUTPUTS}); fi
    _describe rocketline _rocketline_found || _files
}}
compdef _rocketline rocketline
"""


def _fish(words: Words) -> str:
    cases = "\n".join(
        f"        case '{place}'\n            printf '%s\\t%s\\n' "
        + " ".join(f"'{word.text}' '{word.help}'" for word in found)
        for place, found in words.items()
    )
    return f"""# rocketline completion for fish: rocketline completion fish | source
function __rocketline_words
    switch "$argv[1]"
{cases}
        case '*'
            return 1
    end
end
function __rocketline
    set -l given (commandline -opc)
    set -l place ""
    for word in $given[2..-1]
        set -l next (string trim -- "$place $word")
        if __rocketline_words "$next" >/dev/null
            set place "$next"
        end
    end
    if contains -- "$given[-1]" -o --output
        printf '%s\\n' {OUTPUTS}
    else
        __rocketline_words "$place"
    end
end
complete -c rocketline -f -a '(__rocketline)'
"""
