"""Builds the compiled module (`native/`) beside the Python code: as a hook of every install, or by `python hatch_build.py`.

It is optional. Without a C compiler, or where compiling fails, this says so in one line and the package is pure Python.
`ROCKETLINE_BUILD=python` leaves it out, `ROCKETLINE_BUILD=c` makes a failure an error, `ROCKETLINE_CFLAGS` adds flags. The C
code is written for gcc and clang; on Windows nothing is compiled.

Another hook makes the page that package indexes show from the README.
"""

from __future__ import annotations

import os
import re
import runpy
import shlex
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import Any

try:
    from hatchling.builders.hooks.plugin.interface import BuildHookInterface
    from hatchling.metadata.plugin.interface import MetadataHookInterface
except ImportError:  # run as a script
    BuildHookInterface = MetadataHookInterface = object

ROOT = Path(__file__).resolve().parent
FLAGS = ("-std=c11", "-O2", "-fno-strict-aliasing", "-Wall", "-Wextra", "-Wno-unused-parameter")
COMPILE_TIMEOUT_S = 600
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
    # ARCHFLAGS names the processors to build for on macOS, where one machine builds for both.
    flags = (
        *FLAGS,
        *(word for name in ("ARCHFLAGS", "ROCKETLINE_CFLAGS") for word in shlex.split(os.environ.get(name, ""))),
    )
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
    if wanted == "python":
        return None
    if sys.implementation.name != "cpython" or sys.platform == "win32":
        print(f"rocketline is pure Python on {sys.implementation.name} for {sys.platform}", file=sys.stderr)
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


class CustomMetadataHook(MetadataHookInterface):  # type: ignore[misc, valid-type]
    """The description of the package: the README, without links into the repository."""

    def update(self, metadata: dict[str, Any]) -> None:
        text = (ROOT / "README.md").read_text("utf-8")
        metadata["readme"] = {"content-type": "text/markdown", "text": without_local_links(text)}


def without_local_links(text: str) -> str:
    """A page that can be read anywhere: links to files and to headings become their texts, local images are left out.

    >>> without_local_links("see [here](docs/x.md#y), [there](https://example.org)\\n\\n![a map](map.svg)\\n")
    'see here, [there](https://example.org)\\n\\n'
    """
    text = re.sub(r"^!\[[^]]*\]\((?!https?:)[^)]*\)\n", "", text, flags=re.MULTILINE)
    return re.sub(r"(?<!!)\[([^]]*)\]\((?!https?:)[^)]*\)", r"\1", text)


if __name__ == "__main__":
    found = build_if_possible()
    print(found if found is not None else "pure Python")
