"""`rocketline examples`: the example programs, which come with the package."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Annotated

import typer

import rocketline
from rocketline.errors import ConfigError

examples_app = typer.Typer(no_args_is_help=True, help="Example programs: copy them, read them, run them.")


@examples_app.command()
def copy(folder: Annotated[Path, typer.Argument(metavar="DIR", help="A folder that is new or empty.")]) -> None:
    """Copy the example programs into a folder."""
    if folder.is_file() or (folder.is_dir() and any(folder.iterdir())):
        raise ConfigError(f"{folder} exists and is not an empty folder: name another one")
    shutil.copytree(examples_folder(), folder, dirs_exist_ok=True, ignore=shutil.ignore_patterns("__pycache__"))
    for path in sorted(folder.rglob("*.py")):
        print(path)


def examples_folder() -> Path:
    """Inside an installed package, or at the top of a checkout."""
    package = Path(rocketline.__file__).resolve().parent
    for folder in (package / "examples", package.parents[1] / "examples"):
        if folder.is_dir():
            return folder
    raise ConfigError(f"there are no examples in {package}: install rocketline with pip")
