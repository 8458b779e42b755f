"""The description of the API, made from the endpoints: OpenAPI 3.1."""

from __future__ import annotations

from functools import cache
from typing import Any

import msgspec

from rocketline import __version__
from rocketline.console.endpoints import ENDPOINTS, Download, Endpoint, Stream, path_names
from rocketline.console.problems import ProblemView

REFERENCE = "#/components/schemas/{name}"
API = "/api/v1"


@cache
def description() -> dict[str, Any]:
    endpoints = [item for item in ENDPOINTS.values() if item.in_api]
    kinds: list[Any] = [ProblemView]
    for item in endpoints:
        kinds += [item.takes, *([item.gives] if _is_struct(item.gives) else [])]
    _, components = msgspec.json.schema_components(kinds, ref_template=REFERENCE)
    paths: dict[str, Any] = {}
    for item in endpoints:
        path = API + ("/c/{cluster}" if item.in_cluster else "") + item.api_path
        paths.setdefault(path, {})[item.method.lower()] = _operation(item, components)
    return {
        "openapi": "3.1.0",
        "info": {"title": "rocketline console", "version": __version__},
        "paths": paths,
        "components": {
            "schemas": components,
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
        "security": [{"token": []}],
    }


def _operation(item: Endpoint, components: dict[str, Any]) -> dict[str, Any]:
    schema = components[item.takes.__name__]
    in_path = path_names(item.api_path)
    parameters = [_parameter("cluster", "path", {"type": "string"})] if item.in_cluster else []
    parameters += [_parameter(name, "path", schema["properties"][name]) for name in in_path]
    operation: dict[str, Any] = {
        "operationId": item.name,
        "summary": item.help,
        "x-role": item.role.word,
        "responses": _responses(item),
    }
    others = {name: kind for name, kind in schema.get("properties", {}).items() if name not in in_path}
    if item.changes:
        needed = [name for name in schema.get("required", []) if name not in in_path]
        body = {"type": "object", "properties": others, **({"required": needed} if needed else {})}
        operation["requestBody"] = {"required": True, "content": {"application/json": {"schema": body}}}
    else:
        parameters += [
            _parameter(name, "query", kind, name in schema.get("required", [])) for name, kind in others.items()
        ]
    operation["parameters"] = parameters
    return operation


def _parameter(name: str, where: str, schema: dict[str, Any], needed: bool = True) -> dict[str, Any]:
    return {"name": name, "in": where, "required": where == "path" or needed, "schema": schema}


def _responses(item: Endpoint) -> dict[str, Any]:
    kind = {Download: "application/octet-stream", Stream: "text/event-stream"}.get(item.gives, "application/json")
    schema: dict[str, Any] = {}
    if kind == "application/json" and _is_struct(item.gives):
        schema = {"schema": {"$ref": REFERENCE.format(name=item.gives.__name__)}}
    problem = {"application/problem+json": {"schema": {"$ref": REFERENCE.format(name="ProblemView")}}}
    return {
        "200": {"description": "The answer", "content": {kind: schema}},
        "default": {"description": "Why not", "content": problem},
    }


def _is_struct(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, msgspec.Struct) and kind not in (Download, Stream)
