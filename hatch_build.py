"""Builds the compiled module (`native/`) beside the Python code: as a hook of every install, or by `python hatch_build.py`.

It is optional. Without a C compiler, or where compiling fails, this says so in one line and the package is pure Python.
`ROCKETLINE_BUILD=python` leaves it out, `ROCKETLINE_BUILD=c` makes a failure an error, `ROCKETLINE_CFLAGS` adds flags.
"""

from __future__ import annotations

import os
import runpy
import shlex
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import Any

try:
    from hatchling.builders.hooks.plugin.interface import BuildHookInterface
except ImportError:  # run as a script
    BuildHookInterface = object

ROOT = Path(__file__).resolve().parent
FLAGS = ("-std=c11", "-O2", "-fno-strict-aliasing", "-Wall", "-Wextra", "-Wno-unused-parameter")
COMPILE_TIMEOUT_S = 120
sources_hash = runpy.run_path(str(ROOT / "src" / "rocketline" / "_sources.py"))["sources_hash"]


class BuildFailed(RuntimeError):
    """The module could not be compiled."""


def target() -> Path:
    return ROOT / "src" / "rocketline" / f"_compiled{sysconfig.get_config_var('EXT_SUFFIX')}"


def compile_module() -> Path:
    """Compile and link in one step; the file appears only when it is complete."""
    compiler = shlex.split(os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc")
    native = ROOT / "native"
    sources = sorted(str(source) for source in native.glob("**/*.c"))
    made = target()
    unfinished = made.with_name(f".{made.name}.{os.getpid()}")
    linking = ["-bundle", "-undefined", "dynamic_lookup"] if sys.platform == "darwin" else ["-shared"]
    include = [f"-I{sysconfig.get_path('include')}", f"-I{native}", f'-DSOURCES="{sources_hash(native)}"']
    flags = (*FLAGS, *shlex.split(os.environ.get("ROCKETLINE_CFLAGS", "")))
    command = [*compiler, *flags, "-fPIC", *linking, *include, *sources, "-o", str(unfinished)]
    try:
        done = subprocess.run(  # noqa: S603 (the compiler Python was built with, or the one in CC)
            command, capture_output=True, text=True, timeout=COMPILE_TIMEOUT_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise BuildFailed(f"{compiler[0]}: {error}") from error
    if done.returncode:
        unfinished.unlink(missing_ok=True)
        raise BuildFailed(f"{shlex.join(command)} failed:\n{done.stderr}")
    unfinished.replace(made)
    return made


def build_if_possible() -> Path | None:
    wanted = os.environ.get("ROCKETLINE_BUILD", "")
    if wanted == "python" or sys.implementation.name != "cpython":
        return None
    try:
        return compile_module()
    except BuildFailed as error:
        if wanted == "c":
            raise
        print(f"rocketline stays pure Python, its compiled module could not be built: {error}", file=sys.stderr)
        return None


class CustomBuildHook(BuildHookInterface):  # type: ignore[misc, valid-type]
    """Puts the compiled module and the examples into wheels; for an editable install they are in the source tree."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        made = build_if_possible()
        if version == "editable":
            return
        build_data["force_include"][str(ROOT / "examples")] = "rocketline/examples"
        if made is not None:
            build_data["pure_python"] = False
            build_data["infer_tag"] = True
            build_data["force_include"][str(made)] = f"rocketline/{made.name}"


if __name__ == "__main__":
    found = build_if_possible()
    print(found if found is not None else "pure Python")
