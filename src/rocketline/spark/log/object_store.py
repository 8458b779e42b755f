"""A folder in an object store, in HDFS or on a disk, by its address: `s3://bucket/folder`, `hdfs://host/folder`, `/folder`.

pyarrow does the work. Accounts come from where the libraries of each store look for them, for S3 AWS_ACCESS_KEY_ID and
AWS_SECRET_ACCESS_KEY; a server of your own from AWS_ENDPOINT_URL, or `?endpoint_override=host:port&scheme=http` behind the
address. An account in the address is refused: addresses appear in logs and in records of runs.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from rocketline.errors import ConfigError, StoreError

REMOTE_SCHEMES = ("s3", "s3a", "hdfs", "viewfs", "gs", "gcs", "abfs", "abfss")
_RENAMES = ("local", "hdfs")
"""File systems on which a file that is being written can be seen; in object stores it appears as a whole."""
_CHUNK_BYTES = 8 << 20


def is_remote(address: str) -> bool:
    return urlsplit(address).scheme in REMOTE_SCHEMES


class ObjectStore:
    """Files of one folder, by names like `commitlog/00000000000000000000`. StoreError names the address that failed."""

    def __init__(self, address: str) -> None:
        """ConfigError for an address that cannot be used; nothing is read yet."""
        parts = urlsplit(address)
        if parts.scheme in REMOTE_SCHEMES and (parts.username is not None or parts.password is not None):
            raise ConfigError(
                f"{parts.scheme}://...@{parts.hostname}{parts.path}: leave the account out of the address, and set "
                "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or what your store uses"
            )
        self.address = address
        self._files, self._root = _opened(address)
        self._root = self._root.rstrip("/")

    def read(self, name: str, most_bytes: int) -> bytes | None:
        """The content of a file; None when there is none, StoreError when it is larger than expected."""
        with self._errors("read", name):
            info = self._files.get_file_info(self._path(name))
            if not info.is_file:
                return None
            if info.size > most_bytes:
                raise StoreError(f"{self._path(name)} has {info.size:,} bytes, more than the {most_bytes:,} expected")
            with self._files.open_input_stream(self._path(name)) as stream:
                return bytes(stream.read())

    def write(self, name: str, data: bytes) -> None:
        """Replace a file by one that appears as a whole."""
        path = self._path(name)
        with self._errors("write", name):
            self._make_parent(path)
            if self._files.type_name not in _RENAMES:
                self._put(path, data)
                return
            self._put(path + ".new", data)
            if self._files.type_name != "local" and self._files.get_file_info(path).is_file:
                self._files.delete_file(path)
            self._files.move(path + ".new", path)

    def upload(self, source: Path, name: str) -> str:
        """Copy a file there; returns the SHA-256 of what was sent."""
        digest = hashlib.sha256()
        with self._errors("write", name):
            self._make_parent(self._path(name))
            with source.open("rb") as file, self._files.open_output_stream(self._path(name)) as stream:
                while chunk := file.read(_CHUNK_BYTES):
                    digest.update(chunk)
                    stream.write(chunk)
        return digest.hexdigest()

    def download(self, name: str, target: Path) -> str:
        """Copy a file here; returns the SHA-256 of what came."""
        with target.open("wb") as file:
            return self._read_all(name, file.write)

    def sum_of(self, name: str) -> str:
        """The SHA-256 of a file."""
        return self._read_all(name, len)

    def _read_all(self, name: str, take: Callable[[bytes], object]) -> str:
        digest = hashlib.sha256()
        with self._errors("read", name), self._files.open_input_stream(self._path(name)) as stream:
            while chunk := stream.read(_CHUNK_BYTES):
                digest.update(chunk)
                take(chunk)
        return digest.hexdigest()

    def folders(self) -> list[str]:
        """The names of the folders in this one."""
        from pyarrow.fs import FileSelector

        with self._errors("list", ""):
            found = self._files.get_file_info(FileSelector(self._root, allow_not_found=True))
        return sorted(info.base_name for info in found if not info.is_file)

    def _path(self, name: str) -> str:
        return f"{self._root}/{name}" if name else self._root

    def _put(self, path: str, data: bytes) -> None:
        with self._files.open_output_stream(path) as stream:
            stream.write(data)

    def _make_parent(self, path: str) -> None:
        if self._files.type_name in _RENAMES:
            self._files.create_dir(path.rpartition("/")[0], recursive=True)

    @contextmanager
    def _errors(self, what: str, name: str) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            first = (str(error).splitlines() or [type(error).__name__])[0]
            raise StoreError(f"cannot {what} {self._files.type_name} {self._path(name)}: {first}") from error


def inside(address: str, name: str) -> str:
    """The address of a folder in the one that an address names.

    >>> inside("s3://bucket/offload?region=eu-west-1", "broker-a")
    's3://bucket/offload/broker-a?region=eu-west-1'
    """
    before, mark, query = address.partition("?")
    return f"{before.rstrip('/')}/{name}{mark}{query}"


def _opened(address: str) -> tuple[Any, str]:
    try:
        import pyarrow
        from pyarrow.fs import FileSystem, LocalFileSystem
    except ImportError as error:
        raise ConfigError("object stores need pyarrow: pip install 'rocketline[arrow]'") from error
    scheme = urlsplit(address).scheme
    if scheme in ("", "file"):
        path = address.removeprefix("file://").removeprefix("file:")
        return LocalFileSystem(), str(Path(path).absolute())
    if scheme not in REMOTE_SCHEMES:
        raise ConfigError(f"{address}: {scheme}:// is not known; there are {', '.join(REMOTE_SCHEMES)} and folders")
    try:
        files, root = FileSystem.from_uri("s3" + address[3:] if scheme == "s3a" else address)
    except (OSError, ValueError, pyarrow.ArrowException) as error:
        raise ConfigError(f"{address} cannot be used: {str(error).splitlines()[0]}") from error
    return files, str(root)
