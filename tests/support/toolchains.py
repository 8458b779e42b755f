"""Programs in other languages: built once per content, in a copy under `build/`."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from tests.support.patience import PATIENCE_S

from .java import BUILD, locked, tail

GO_BUILD = ("go", "build", "-mod=mod", "-buildvcs=false", "-o", "program", ".")
"""Takes modules in the versions that go.mod names, and those that they name."""
_CRATES = BUILD / "programs" / "crates"
RUST_BUILD = ("cargo", "install", "--quiet", "--debug", "--path=.", "--root=.", f"--target-dir={_CRATES}")
"""Makes `bin/driver`. All programs share what crates compile to, which takes most of the time."""


class ToolMissing(RuntimeError):
    """A language's tools or packages cannot be had on this machine."""


def found(program: str) -> str:
    """The path of a program, on PATH or in the environment that tests run in, where `tools/ensure-clients` puts what is
    missing."""
    path = shutil.which(program, path=_search_path())
    if path is None:
        raise ToolMissing(f"{program} is not on PATH: `make clients` fetches it")
    return path


def built_copy(sources: Path, name: str, command: Sequence[str]) -> Path:
    """A copy of a folder, after this command was run in it."""
    files = sorted(path for path in sources.rglob("*") if path.is_file())
    content = hashlib.sha256(b"\0".join([*(path.read_bytes() for path in files), " ".join(command).encode()]))
    folder = BUILD / "programs" / f"{name}-{content.hexdigest()[:16]}"
    program = found(command[0])
    with locked(BUILD / "programs" / f"{name}.lock"):
        if folder.is_dir():
            return folder
        scratch = folder.with_name(f"{folder.name}.tmp")
        shutil.rmtree(scratch, ignore_errors=True)
        shutil.copytree(sources, scratch)
        done = subprocess.run(
            [program, *command[1:]],
            cwd=scratch,
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
            env={**os.environ, "PATH": _search_path()},
        )
        if done.returncode != 0:
            raise ToolMissing(f"{' '.join(command)} failed in {sources}:\n{tail(done.stdout + done.stderr)}")
        scratch.rename(folder)
    return folder


def _search_path() -> str:
    return os.pathsep.join([os.environ.get("PATH", os.defpath), str(Path(sys.executable).parent)])
