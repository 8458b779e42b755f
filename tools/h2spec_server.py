#!/usr/bin/env python3
"""A server on `rocketline.http2` for h2spec, a program that tries the rules of HTTP/2 on servers:

    PYTHONPATH=src python tools/h2spec_server.py 8099 &
    go install github.com/summerwind/h2spec/cmd/h2spec@latest
    h2spec --host 127.0.0.1 --port 8099

The front itself will not do: it refuses requests that are none of gRPC's at once, and much of what h2spec tries happens
between a request and its answer.
"""

import asyncio
import sys
from typing import cast

from rocketline.http2 import ConnectionFailed, DataReceived, Http2Connection, Http2Limits, RequestStarted, Stream
from rocketline.http2.hpack import encode_fields

HEADERS = encode_fields((b":status", b"200"), (b"content-type", b"text/plain"))
TRAILERS = encode_fields((b"x-end", b"1"))
PAUSE_S = 0.1
"""Before each answer."""


class Server(asyncio.Protocol):
    def __init__(self) -> None:
        self._http2 = Http2Connection(Http2Limits(max_streams=100))

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._write()

    def data_received(self, data: bytes) -> None:
        try:
            for event in self._http2.receive(data):
                if isinstance(event, RequestStarted | DataReceived) and event.is_ended:
                    asyncio.get_running_loop().call_later(PAUSE_S, self._answer, event.stream)
        except ConnectionFailed:
            self._write()
            self._transport.close()
        else:
            self._write()

    def _answer(self, stream: Stream) -> None:
        if stream.id in self._http2.streams and not self._transport.is_closing():
            self._http2.send_answer(stream, HEADERS, b"hello", TRAILERS)
            self._write()

    def _write(self) -> None:
        self._transport.writelines(self._http2.take_output())


async def main() -> None:
    server = await asyncio.get_running_loop().create_server(Server, "127.0.0.1", int(sys.argv[1]))
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(main())
