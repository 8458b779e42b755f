"""Schema registries that speak Confluent's HTTP interface, and the bytes that messages have before their bodies.

    Confluent    0, then the id of the schema in 4 bytes
    Apicurio     0, then the id in 8 bytes; its address for this interface ends in /apis/ccompat/v7

The address comes from the operator alone: neither a message nor an answer of the registry can name another, so redirects are
refused. An id that the registry does not know sets the message aside. A registry that does not answer ends the task.
"""

from __future__ import annotations

import base64
import json
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, TypeVar
from urllib.error import HTTPError, URLError
from urllib.parse import quote, urlsplit
from urllib.request import HTTPRedirectHandler, OpenerDirector, Request, build_opener

from rocketline.errors import ConfigError
from rocketline.pipelines.tables.decoding.interface import BadBody

MAX_SCHEMA_BYTES = 4 << 20
MAX_CACHED = 1000
"""Schemas, and ids without one, that a worker remembers."""
WAIT_S = 30.0
T = TypeVar("T")


class Wire(Enum):
    """How a message says which schema its body has."""

    CONFLUENT = "confluent"
    APICURIO = "apicurio"

    @property
    def prefix_bytes(self) -> int:
        return 5 if self is Wire.CONFLUENT else 9

    @property
    def described(self) -> str:
        return f"a 0 and the id of a schema in {self.prefix_bytes - 1} bytes ({self.value})"

    def strip(self, body: bytes) -> tuple[int, bytes]:
        """(id of the schema, the rest); BadBody without these bytes."""
        size = self.prefix_bytes
        if len(body) < size or body[0] != 0:
            raise BadBody(f"the body does not begin with {self.described}")
        return int.from_bytes(body[1:size], "big"), body[size:]


class _NoRedirects(HTTPRedirectHandler):
    def redirect_request(self, *_: Any, **__: Any) -> None:
        return None


@dataclass(frozen=True)
class Registry:
    address: str
    account: str | None = field(default=None, repr=False)
    """user:password"""

    def __post_init__(self) -> None:
        parts = urlsplit(self.address)
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.username or parts.password:
            raise ConfigError(
                "--schema-registry: an address like http://host:8081 is expected; the account belongs into "
                "ROCKETLINE_REGISTRY_ACCOUNT=user:password"
            )

    def latest(self, subject: str) -> str:
        """The newest schema of a subject; ConfigError when there is none."""
        answer = self._get(f"/subjects/{quote(subject, safe='')}/versions/latest")
        if answer is None:
            raise ConfigError(f"{self.address} has no subject {subject!r}: name it with --schema-subject")
        return _schema_of(answer, ConfigError)

    def cached(self, parse: Callable[[str], T]) -> Callable[[int], T]:
        """A function that finds a schema by its id; it raises BadBody for ids without one, and asks once for each id."""
        known: OrderedDict[int, T | BadBody] = OrderedDict()

        def find(number: int) -> T:
            if number not in known:
                known[number] = self._by_id(number, parse)
                if len(known) > MAX_CACHED:
                    known.popitem(last=False)
            known.move_to_end(number)
            found = known[number]
            if isinstance(found, BadBody):
                raise found
            return found

        return find

    def _by_id(self, number: int, parse: Callable[[str], T]) -> T | BadBody:
        answer = self._get(f"/schemas/ids/{number}")
        if answer is None:
            return BadBody(f"the registry does not know schema {number}")
        try:
            return parse(_schema_of(answer, BadBody))
        except BadBody as error:
            return BadBody(f"schema {number} of the registry: {error}")

    def _get(self, path: str) -> Any:
        """The answer; None for 404. ConfigError names the registry when it does not answer as it should."""
        headers = {"Accept": "application/vnd.schemaregistry.v1+json, application/json"}
        if self.account:
            headers["Authorization"] = f"Basic {base64.b64encode(self.account.encode()).decode()}"
        url = self.address.rstrip("/") + path
        request = Request(url, headers=headers)  # noqa: S310 - the scheme is checked above
        try:
            with _opener().open(request, timeout=WAIT_S) as answer:
                data = answer.read(MAX_SCHEMA_BYTES + 1)
        except HTTPError as error:
            if error.code == 404:
                return None
            raise ConfigError(f"the schema registry answers {error.code} to {url}") from error
        except (URLError, OSError) as error:
            raise ConfigError(f"the schema registry does not answer at {url}: {error}") from error
        if len(data) > MAX_SCHEMA_BYTES:
            raise ConfigError(f"{url}: the schema has more than {MAX_SCHEMA_BYTES} bytes")
        try:
            return json.loads(data)
        except ValueError as error:
            raise ConfigError(f"{url} answers no JSON: is this the address of the registry?") from error


def _opener() -> OpenerDirector:
    return build_opener(_NoRedirects)


def _schema_of(answer: Any, problem: Callable[[str], Exception]) -> str:
    schema = answer.get("schema") if isinstance(answer, dict) else None
    if not isinstance(schema, str):
        raise problem("the registry's answer has no schema")
    if answer.get("schemaType", "AVRO") != "AVRO":
        raise problem(f"it is a schema of {answer['schemaType']}, not of Avro")
    if answer.get("references"):
        raise problem("it refers to other schemas, which is not supported: give the whole schema with --schema-file")
    return schema
