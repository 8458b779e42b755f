"""`rocketline examples`: the example programs, which come with the package."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Annotated

import typer

import rocketline
from rocketline.cli.options import OutputOption
from rocketline.cli.tables import Output, Table, show
from rocketline.errors import ConfigError

examples_app = typer.Typer(no_args_is_help=True, help="Example programs: copy them, read them, run them.")


@examples_app.command()
def copy(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="A folder that is new or empty.")],
    output: OutputOption = Output.table,
) -> None:
    """Copy the example programs into a folder."""
    if folder.is_file() or (folder.is_dir() and any(folder.iterdir())):
        raise ConfigError(f"{folder} exists and is not an empty folder: name another one")
    shutil.copytree(examples_folder(), folder, dirs_exist_ok=True, ignore=shutil.ignore_patterns("__pycache__"))
    copied = sorted(map(str, folder.rglob("*.py")))
    if output is Output.table:
        print("\n".join(copied))
    else:
        show([Table(("file",), [(path,) for path in copied])], output)


def examples_folder() -> Path:
    """Inside an installed package, or at the top of a checkout."""
    package = Path(rocketline.__file__).resolve().parent
    for folder in (package / "examples", package.parents[1] / "examples"):
        if folder.is_dir():
            return folder
    raise ConfigError(f"there are no examples in {package}: install rocketline with pip")
