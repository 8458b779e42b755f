"""The API in words, and its description for programs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from rocketline.console.access import Role
from rocketline.console.endpoints import ENDPOINTS, Input, View, reads
from rocketline.console.openapi import API, description

if TYPE_CHECKING:
    from rocketline.console.visit import Visit


class Call(View, kw_only=True):
    method: str
    path: str
    role: str
    help: str
    parameters: list[str]


class ApiDocs(View, kw_only=True):
    calls: list[Call]


@reads("/api/docs", Role.VIEWER, "api.html", in_cluster=False, in_api=False)
async def api_docs(visit: Visit, wanted: Input) -> ApiDocs:
    """All calls of the API."""
    calls = [
        Call(
            method=item.method,
            path=API + ("/c/{cluster}" if item.in_cluster else "") + item.api_path,
            role=item.role.word,
            help=item.help,
            parameters=[field.encode_name for field in msgspec.structs.fields(item.takes)],
        )
        for item in ENDPOINTS.values()
        if item.in_api
    ]
    return ApiDocs(calls=sorted(calls, key=lambda call: (call.path, call.method)))


@reads("/openapi.json", Role.VIEWER, in_cluster=False)
async def openapi(visit: Visit, wanted: Input) -> dict[str, Any]:
    """This description."""
    return description()
