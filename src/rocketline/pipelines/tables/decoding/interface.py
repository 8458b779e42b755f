"""What a kind of body has: its columns, and a decoder that workers use."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

MAX_REASON_CHARS = 500


class BadBody(Exception):
    """A body cannot be decoded; the text is the reason that its row gets."""


class Decoding(Protocol):
    """Can be pickled: it goes from the driver to the workers."""

    def columns(self) -> StructType:
        """The columns that bodies have now; ConfigError for a schema that cannot be used."""

    def decoder(self) -> Callable[[bytes], dict[str, Any]]:
        """A function that makes values by name of a body; BadBody says why it cannot. It caches what it looks up."""
