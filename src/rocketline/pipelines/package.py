"""`package`: writes the part of rocketline that executors need into one file, which `spark-submit` distributes.

- A zip for `--py-files`: rocketline and the modules that register its sources. Executors must have the libraries.
- A tar.gz for `--archives`: the same with the compiled module and the libraries it needs besides Spark's own (msgspec, lz4,
  backports.zstd). It contains compiled code, so it is for machines like this one. It is unpacked on executors, and
  `PYTHONPATH` points to it.

Files are sorted and have no times, so that the same content makes the same archive.
"""

from __future__ import annotations

import gzip
import io
import sys
import tarfile
import zipfile
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path, PurePosixPath

from rocketline.errors import ConfigError

LIBRARIES = ("msgspec", "lz4", *(("backports.zstd",) if sys.version_info < (3, 14) else ()))
_MODULES = ("rocketline", "pyspark_rocketmq", "pyspark_rocketmq_log")
_ZIP_TIME = (1980, 1, 1, 0, 0, 0)


def package(target: Path) -> list[tuple[str, int]]:
    """Write an archive, .zip or .tar.gz by its name; returns (part, number of files) of its content."""
    if target.name.endswith(".zip"):
        return _write_zip(target)
    if target.name.endswith((".tar.gz", ".tgz")):
        return _write_tar(target)
    raise ConfigError(f"{target}: .zip (for --py-files) or .tar.gz (for --archives) is expected")


def _write_zip(target: Path) -> list[tuple[str, int]]:
    counts = []
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        for module in _MODULES:
            # Python cannot load a compiled module from a zip.
            files = [(name, path) for name, path in _module_files(module) if path.suffix not in (".so", ".pyd")]
            for name, path in files:
                archive.writestr(zipfile.ZipInfo(name, _ZIP_TIME), path.read_bytes(), zipfile.ZIP_DEFLATED)
            counts.append((module, len(files)))
    return [part for part in counts if part[1]]


def _write_tar(target: Path) -> list[tuple[str, int]]:
    counts = []
    with (
        target.open("wb") as file,
        gzip.GzipFile(fileobj=file, mode="wb", compresslevel=6, mtime=0, filename="") as packed,
        tarfile.open(fileobj=packed, mode="w") as archive,
    ):
        for part in (*_MODULES, *LIBRARIES):
            files = list(_library_files(part) if part in LIBRARIES else _module_files(part))
            for name, path in files:
                content = path.read_bytes()
                entry = tarfile.TarInfo(name)
                entry.size, entry.mode = len(content), 0o644
                archive.addfile(entry, io.BytesIO(content))
            counts.append((part, len(files)))
    return [part for part in counts if part[1]]


def _module_files(module: str) -> Iterator[tuple[str, Path]]:
    root = Path(__file__).resolve().parents[2]
    for path in sorted((root / module).rglob("*")):
        if path.is_file() and path.suffix != ".pyc":
            yield path.relative_to(root).as_posix(), path


def _library_files(name: str) -> Iterator[tuple[str, Path]]:
    try:
        files = distribution(name).files or []
    except PackageNotFoundError:
        raise ConfigError(f"{name} is not installed here, so it cannot be packed") from None
    for entry in sorted(files):
        path = Path(str(entry.locate()))
        is_inside = ".." not in PurePosixPath(entry).parts
        if is_inside and path.is_file() and path.suffix != ".pyc":
            yield entry.as_posix(), path
