"""One remoting command: a request, or the response with the same `opaque`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

import msgspec

from rocketline.protocol.records import Buffer

JSON = 0
ROCKETMQ = 1
"""Encodings of a frame's header; every frame names its own."""

RESPONSE = 1
ONEWAY = 2
"""Bits of `flag`."""

VERSION = 493
"""The version we announce: Apache's 5.4.0, whose behaviour we have. Peers enable features by it."""

LANGUAGES = (
    "JAVA", "CPP", "DOTNET", "PYTHON", "DELPHI", "ERLANG", "RUBY", "OTHER", "HTTP", "GO", "PHP", "OMS", "RUST", "NODE_JS",
)  # fmt: skip


Int32 = Annotated[int, msgspec.Meta(ge=-(1 << 31), le=(1 << 31) - 1)]


class Command(msgspec.Struct, gc=False, rename={"ext": "extFields"}):
    """A request or response. `ext` holds the header fields, all strings; None when the frame had no such member.

    When sending, `chunks` replaces `body` if the body is in several buffers (stored messages that go from the commit log to
    the socket without a copy); a received command has only `body`.
    """

    code: Int32
    ext: dict[str, str] | None = None
    body: bytes = b""
    opaque: Int32 = 0
    flag: Int32 = 0
    remark: str | None = None
    version: Int32 = VERSION
    language: str = "PYTHON"
    encoding: int = JSON
    chunks: Any = None
    """Buffers, in order."""
    nulls: tuple[str, ...] = ()
    """Fields of a received header whose value is null. They are not in `ext`, and a signature may cover them."""

    @property
    def is_response(self) -> bool:
        return bool(self.flag & RESPONSE)

    @property
    def is_oneway(self) -> bool:
        return bool(self.flag & ONEWAY)

    def reply(
        self,
        code: int,
        ext: dict[str, str] | None = None,
        body: bytes = b"",
        *,
        remark: str | None = None,
        chunks: Sequence[Buffer] | None = None,
    ) -> Command:
        """The response to this request, in the encoding it came in."""
        return Command(
            code, {} if ext is None else ext, body, self.opaque, RESPONSE, remark, encoding=self.encoding, chunks=chunks
        )

    def __repr__(self) -> str:
        kind = "response" if self.flag & RESPONSE else "oneway" if self.flag & ONEWAY else "request"
        remark = f" {self.remark!r}" if self.remark else ""
        return f"<{kind} {self.code} #{self.opaque}{remark} ext={self.ext} body={len(self.body)}B>"
