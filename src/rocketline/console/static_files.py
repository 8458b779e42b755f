"""Styles and scripts: in memory, compressed once, under a URL with their hash, so that browsers keep them for ever."""

from __future__ import annotations

import gzip
import hashlib
from functools import cache
from importlib.resources import files

from starlette.requests import Request
from starlette.responses import Response

KINDS = {"css": "text/css; charset=utf-8", "js": "text/javascript; charset=utf-8", "svg": "image/svg+xml"}
HEADERS = {"cache-control": "public, max-age=31536000, immutable"}


@cache
def static_files() -> dict[str, bytes]:
    folder = files("rocketline.console") / "static"
    names = sorted(item.name for item in folder.iterdir() if item.name.rpartition(".")[2] in KINDS)
    return {name: (folder / name).read_bytes() for name in names}


@cache
def static_hash() -> str:
    """One hash for all files, because scripts import each other by relative names."""
    digest = hashlib.sha256()
    for name, content in static_files().items():
        digest.update(name.encode() + b"\0" + content)
    return digest.hexdigest()[:12]


@cache
def _compressed(name: str) -> bytes:
    return gzip.compress(static_files()[name], 9, mtime=0)


def static_response(request: Request) -> Response:
    name = request.path_params["name"]
    if request.path_params["hash"] != static_hash() or name not in static_files():
        return Response(status_code=404)
    headers, body = dict(HEADERS), static_files()[name]
    if "gzip" in request.headers.get("accept-encoding", ""):
        headers |= {"content-encoding": "gzip", "vary": "Accept-Encoding"}
        body = _compressed(name)
    return Response(body, headers=headers, media_type=KINDS[name.rpartition(".")[2]])
