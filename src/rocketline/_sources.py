"""Which state of the C sources a compiled module was built from; used by the build and at import."""

from __future__ import annotations

from hashlib import sha256
from pathlib import Path


def sources_hash(folder: Path) -> str:
    """Identifies the sources in a folder."""
    digest = sha256()
    for path in sorted(folder.glob("**/*.[ch]")):
        digest.update(path.name.encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()[:16]
