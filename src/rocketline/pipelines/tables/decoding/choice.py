"""Which decoding a job uses, from what its user gave."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from rocketline.errors import ConfigError
from rocketline.pipelines.tables.decoding.avro import AvroDecoding, read_avro_schema
from rocketline.pipelines.tables.decoding.interface import Decoding
from rocketline.pipelines.tables.decoding.protobuf import ProtobufDecoding, read_descriptors
from rocketline.pipelines.tables.decoding.registry import Registry, Wire

DECODED = ("avro", "protobuf")
ACCOUNT_VARIABLE = "ROCKETLINE_REGISTRY_ACCOUNT"


@dataclass(frozen=True)
class SchemaSource:
    """Where schemas come from; what was not given is None."""

    file: Path | None = None
    message_type: str | None = None
    registry: str | None = None
    subject: str | None = None
    wire: str | None = None


def decoding_for(body: str, topic: str, given: SchemaSource) -> Decoding | None:
    """None for bodies that are not decoded here; ConfigError for what does not fit together."""
    if body not in DECODED:
        if given != SchemaSource(wire=given.wire if body == "json" else None):
            raise ConfigError(
                f"schema files and registries have no effect on --body {body}: use --body avro or protobuf"
            )
        return None
    wire = wire_named(given.wire or ("confluent" if given.registry else None))
    if body == "protobuf":
        if given.file is None or given.message_type is None or given.registry is not None:
            raise ConfigError(
                "--body protobuf needs --schema-file with descriptors (protoc --include_imports --descriptor_set_out) and "
                "--message-type; with --wire for bodies that begin with the id of a registry, which is not asked"
            )
        return ProtobufDecoding(read_descriptors(given.file), given.message_type, wire)
    if given.message_type is not None:
        raise ConfigError("--message-type has no effect on --body avro: a schema has one record")
    if (given.file is None) == (given.registry is None):
        raise ConfigError("--body avro needs one of --schema-file FILE.avsc and --schema-registry http://host:port")
    if given.file is not None:
        return AvroDecoding(read_avro_schema(given.file), wire=wire)
    registry = Registry(given.registry or "", os.environ.get(ACCOUNT_VARIABLE))
    return AvroDecoding(registry=registry, subject=given.subject or f"{topic}-value", wire=wire)


def wire_named(name: str | None) -> Wire | None:
    try:
        return None if name is None else Wire(name)
    except ValueError:
        raise ConfigError(f"--wire {name}: there are {', '.join(wire.value for wire in Wire)}") from None
