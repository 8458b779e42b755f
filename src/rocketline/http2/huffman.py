"""The Huffman code of HPACK (RFC 7541, appendix B).

The code is canonical: it follows from the lengths alone. Decoding walks through the tree a byte at a time. The step of each
(node, byte) is found once and kept, of which there are at most 256 x 256.
"""

from __future__ import annotations

from rocketline.errors import RemoteProtocolError

END = 256
"""The symbol that never occurs in a text; its first bits pad the last byte."""

_BY_LENGTH = {
    5: "0-2 a c e i o s t",
    6: "32 37 45-47 3-9 61 A _ b d f-h l-n p r u",
    7: "58 B-W Y j k q v-z",
    8: "38 42 44 59 X Z",
    10: "33 34 40 41 63",
    11: "39 43 124",
    12: "35 62",
    13: "0x0 36 64 91 93 126",
    14: "94 125",
    15: "60 96 123",
    19: "92 195 208",
    20: "128 130 131 162 184 194 224 226",
    21: "153 161 167 172 176 177 179 209 216 217 227 229 230",
    22: "129 132-134 136 146 154 156 160 163 164 169 170 173 178 181 185-187 189 190 196 198 228 232 233",
    23: "0x1 135 137-141 143 147 149-152 155 157 158 165 166 168 174 175 180 182 183 188 191 197 231 239",
    24: "0x9 142 144 145 148 159 171 206 215 225 236 237",
    25: "199 207 234 235",
    26: "192 193 200-202 205 210 213 218 219 238 240 242 243 255",
    27: "203 204 211 212 214 221-223 241 244-248 250-254",
    28: "0x2-0x8 11 12 14-21 23-31 127 220 249",
    30: "10 13 22 256",
}
"""Symbols by the length of their code: characters (one digit or letter) or numbers, and ranges of them."""


def _symbol(text: str) -> int:
    return ord(text) if len(text) == 1 else int(text, 0)


def _symbols(text: str) -> list[int]:
    found: list[int] = []
    for item in text.split():
        first, _, last = item.partition("-")
        found += range(_symbol(first), _symbol(last or first) + 1)
    return found


def _codes() -> dict[int, tuple[int, int]]:
    """(code, length) of each symbol."""
    codes: dict[int, tuple[int, int]] = {}
    code = former = 0
    for length, text in _BY_LENGTH.items():
        code <<= length - former
        former = length
        for symbol in _symbols(text):
            codes[symbol] = code, length
            code += 1
    return codes


CODES = _codes()

_Tree = list["int | _Tree | None"]


def _tree() -> tuple[list[list[int]], list[int]]:
    """(children of each node: another node, or a symbol as -1 - symbol; depth of nodes that padding may end in, else -1)."""
    nodes: list[list[int]] = [[0, 0]]
    padding = [0]
    for symbol, (code, length) in CODES.items():
        node = 0
        for position in range(length - 1, 0, -1):
            bit = code >> position & 1
            if not nodes[node][bit]:
                nodes[node][bit] = len(nodes)
                nodes.append([0, 0])
                padding.append(padding[node] + 1 if bit and 0 <= padding[node] < 7 else -1)
            node = nodes[node][bit]
        nodes[node][code & 1] = -1 - symbol
    return nodes, padding


_NODES, _PADDING = _tree()
_STEPS: dict[int, tuple[int, bytes]] = {}
SHORT_BYTES = 20
"""Longer texts, as the ids of requests, are seldom repeated."""
_MAX_KNOWN = 4096
_KNOWN: dict[bytes, bytes] = {}
"""Texts decoded before: clients repeat most of them."""


def decode(data: bytes) -> bytes:
    """The text of encoded bytes; RemoteProtocolError when they are no such text."""
    known = _KNOWN.get(data)
    if known is not None:
        return known
    node = 0
    parts = []
    steps = _STEPS
    for byte in data:
        found = steps.get(node << 8 | byte)
        if found is None:
            found = steps[node << 8 | byte] = _step(node, byte)
        node, part = found
        parts.append(part)
    if _PADDING[node] < 0:
        raise RemoteProtocolError("a Huffman-coded text does not end with padding of less than a byte")
    text = b"".join(parts)
    if len(_KNOWN) >= _MAX_KNOWN:
        _KNOWN.clear()
    if len(data) <= SHORT_BYTES:
        _KNOWN[data] = text
    return text


def _step(node: int, byte: int) -> tuple[int, bytes]:
    """(the node after a byte, the symbols that it completes)."""
    found = bytearray()
    for position in range(7, -1, -1):
        following = _NODES[node][byte >> position & 1]
        if following < 0:
            if -1 - following == END:
                raise RemoteProtocolError("a Huffman-coded text has the symbol that ends none")
            found.append(-1 - following)
            following = 0
        node = following
    return node, bytes(found)


def encode(text: bytes) -> bytes:
    """The encoded bytes of a text."""
    bits = length = 0
    for symbol in text:
        code, size = CODES[symbol]
        bits = bits << size | code
        length += size
    pad = -length % 8
    return (bits << pad | (1 << pad) - 1).to_bytes((length + pad) // 8, "big")
