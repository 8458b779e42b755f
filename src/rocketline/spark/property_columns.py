"""Properties of many records at once: the text `name 0x01 value 0x02 ...` of each as a map, or some names as columns.

Nearly every text is *regular*: pairs one after the other, each with both separators, valid UTF-8, no name twice. Regular
texts are split by finding all separators of a batch together. Irregular ones, which readers must accept
(`protocol.properties`), are decoded one by one, and their rows are put back in place. In nearly every batch, which one
producer filled, all regular texts have the same names in the same order: then names need not be looked at one by one.

The compiled `take_properties` reads the texts in place, and leaves irregular ones to Python as well.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from rocketline._impl import compiled
from rocketline.protocol.properties import decode_properties
from rocketline.spark.record_table import Buffer, Mask, Positions, cut_out, gather, text_array, text_parts

MAP = pa.map_(pa.string(), pa.string())

_NAME_END, _VALUE_END = 1, 2
_MAX_FLAGS = 1 << 26
"""Memory for finding names that occur twice: a byte for each combination of a row and a name."""


@dataclass(frozen=True)
class PropertyColumns:
    """The columns asked for of the properties of a batch."""

    maps: pa.MapArray | None
    named: dict[str, pa.StringArray]
    """A column for each name, null where a record has no such property."""


def read_properties(
    buffer: Buffer, begins: Positions, ends: Positions, names: Sequence[str], with_maps: bool
) -> PropertyColumns:
    """The properties whose texts lie between `begins` and `ends`."""
    encoded = tuple([name.encode() for name in names])
    irregular, maps, columns = take_properties(buffer, begins, ends, encoded, with_maps)
    count = len(begins) - len(irregular)
    named = {name: _column(count, *column) for name, column in zip(names, columns)}
    regular = PropertyColumns(_maps(*maps) if with_maps else None, named)
    if not irregular:
        return regular
    is_irregular = np.zeros(len(begins), np.bool_)
    is_irregular[irregular] = True
    others = cut_out(buffer, begins[irregular], ends[irregular])
    return _merged(regular, _one_by_one(others, names, with_maps), is_irregular)


def _column(count: int, offsets: Any, data: Any, present: Any) -> pa.StringArray:
    """A column of texts made of its parts; `present` has a byte for each row, 1 or 0."""
    flags = np.frombuffer(present, np.uint8)
    valid = None if flags.all() else pa.py_buffer(np.packbits(flags, bitorder="little"))
    return text_array(pa.string(), count, offsets, data, valid)


def _maps(firsts: Any, name_offsets: Any, name_data: Any, value_offsets: Any, value_data: Any) -> pa.MapArray:
    pairs = len(name_offsets) // 4 - 1
    names = text_array(pa.string(), pairs, name_offsets, name_data)
    values = text_array(pa.string(), pairs, value_offsets, value_data)
    return pa.MapArray.from_arrays(pa.array(np.frombuffer(firsts, np.int32)), names, values)


@compiled
def take_properties(
    buffer: Buffer, begins: Positions, ends: Positions, names: tuple[bytes, ...], with_maps: bool
) -> tuple[list[int], Sequence[Any], Sequence[Sequence[Any]]]:
    """(rows of irregular texts, parts of the maps, parts of the column of each name); maps and columns are of regular texts.

    Parts are objects with the buffer protocol. Of a column: offsets, bytes, and a byte for each row, 1 where it has a value.
    Of the maps: the number of the first pair of each row, then offsets and bytes of names, and of values.
    """
    texts = cut_out(buffer, begins, ends)
    is_irregular, pairs = _split(texts)
    columns = [_column_parts(pairs.column(name.decode())) for name in names]
    maps = (pairs.firsts, *text_parts(pairs.names()), *text_parts(pairs.values())) if with_maps else ()
    return np.flatnonzero(is_irregular).tolist(), maps, columns


def _column_parts(column: pa.StringArray) -> tuple[Any, Any, Any]:
    present: npt.NDArray[np.bool_] = column.is_valid().to_numpy(zero_copy_only=False)
    return *text_parts(column), present.view(np.uint8)


def _split(texts: pa.BinaryArray) -> tuple[Mask, _Pairs | _UniformPairs]:
    """(which texts are irregular, the pairs of the others)."""
    is_irregular = np.zeros(len(texts), np.bool_)
    regular = texts
    while True:
        content = _TextBuffer(regular)
        found = content.irregular_rows()
        if found is None:
            uniform = _uniform_pairs(content)
            if uniform is not None:
                return is_irregular, uniform
            pairs = _Pairs(content)
            found = pairs.rows_with_repeated_names()
            if found is None:
                return is_irregular, pairs
        is_irregular[np.flatnonzero(~is_irregular)[found]] = True
        regular = texts.filter(pa.array(~is_irregular))


class _TextBuffer:
    """The bytes of all texts, one after the other, with the positions of texts and separators in them."""

    def __init__(self, texts: pa.BinaryArray) -> None:
        _, offsets, data = texts.buffers()
        self.texts = texts
        self.offsets = np.zeros(1, np.int32)
        self.data = np.empty(0, np.uint8)
        if len(texts):
            within = np.frombuffer(offsets, np.int32)[texts.offset : texts.offset + len(texts) + 1]
            self.offsets = within - within[0]
            if data is not None:
                self.data = np.frombuffer(data, np.uint8)[within[0] : within[-1]]
        self.separators = np.flatnonzero(self.data <= _VALUE_END)
        if (kinds := self.data[self.separators]).size and not kinds.min():
            self.separators = self.separators[kinds > 0]

    def irregular_rows(self) -> Mask | None:
        """Which texts are not pairs with all their separators, or not UTF-8; None when all are regular."""
        not_utf8 = _not_utf8(self.texts)
        if self._separators_alternate():
            return not_utf8
        return self._badly_separated_rows() if not_utf8 is None else not_utf8 | self._badly_separated_rows()

    def _separators_alternate(self) -> bool:
        """Whether in all texts every name and every value is there and has its separator."""
        at = self.separators
        kinds = self.data[at]
        last = self.data[self.offsets[1:][np.diff(self.offsets) > 0] - 1]
        return (
            len(at) % 2 == 0
            and bool((kinds[0::2] == _NAME_END).all())
            and bool((kinds[1::2] == _VALUE_END).all())
            and bool((last == _VALUE_END).all())
            and (not len(at) or int(np.diff(at, prepend=-1).min()) > 1)
        )

    def _badly_separated_rows(self) -> Mask:
        at, offsets = self.separators, self.offsets
        firsts = np.searchsorted(at, offsets)
        counts = np.diff(firsts)
        is_wrong: Mask = counts % 2 == 1
        filled = np.flatnonzero(np.diff(offsets) > 0)
        is_wrong[filled[self.data[offsets[1:][filled] - 1] != _VALUE_END]] = True
        rows = np.repeat(np.arange(len(counts)), counts)
        place = np.arange(len(at)) - firsts[rows]
        # A name or value is empty when its separator comes right after the one before it, or first in the text.
        begins = np.where(place == 0, offsets[rows], np.concatenate([[0], at[:-1] + 1]))
        is_wrong[rows[(self.data[at] != place % 2 + 1) | (at == begins)]] = True
        return is_wrong


class _Pairs:
    """Names and values of regular texts, laid end to end; text number i has the pairs `firsts[i]` to `firsts[i + 1]`."""

    def __init__(self, content: _TextBuffer) -> None:
        at = content.separators
        cuts = np.zeros(2 * len(at) + 1, np.int32)
        cuts[1::2] = at
        cuts[2::2] = at + 1
        # Elements in turn: a name, its separator, a value, its separator. UTF-8 cut at an ASCII character stays UTF-8.
        laid = pa.Array.from_buffers(pa.string(), 2 * len(at), [None, pa.py_buffer(cuts), pa.py_buffer(content.data)])
        self._names = laid.take(pa.array(np.arange(0, 2 * len(at), 4, dtype=np.int32)))
        self._values = laid.take(pa.array(np.arange(2, 2 * len(at), 4, dtype=np.int32)))
        self.firsts = np.searchsorted(at[1::2], content.offsets).astype(np.int32)
        encoded = self._names.dictionary_encode()
        self._codes = encoded.indices.to_numpy()
        self._distinct: list[str] = encoded.dictionary.to_pylist()

    def _rows(self) -> npt.NDArray[Any]:
        """The number of the text each pair is in."""
        return np.repeat(np.arange(len(self.firsts) - 1), np.diff(self.firsts))

    def rows_with_repeated_names(self) -> Mask | None:
        """Which texts have a name twice; None when no text does."""
        count, kinds = len(self.firsts) - 1, len(self._distinct)
        places = self._rows() * kinds + self._codes
        if count * kinds <= _MAX_FLAGS:
            seen = np.zeros(count * kinds, np.bool_)
            seen[places] = True
            if np.count_nonzero(seen) == len(places):
                return None
        distinct, counts = np.unique(places, return_counts=True)
        if len(distinct) == len(places):
            return None
        rows = np.zeros(count, np.bool_)
        rows[distinct[counts > 1] // kinds] = True
        return rows

    def column(self, name: str) -> pa.StringArray:
        count = len(self.firsts) - 1
        if name not in self._distinct:
            return pa.nulls(count, pa.string())
        at = np.flatnonzero(self._codes == self._distinct.index(name))
        if len(at) == count:
            return self._values.take(pa.array(at))
        indices = np.full(count, -1, np.int64)
        indices[self._rows()[at]] = at
        return self._values.take(pa.array(indices, mask=indices < 0))

    def names(self) -> pa.StringArray:
        return self._names

    def values(self) -> pa.StringArray:
        return self._values


class _UniformPairs:
    """Names and values of regular texts that all have the same names in the same order."""

    def __init__(self, content: _TextBuffer, names: list[str], begins: Positions, ends: Positions) -> None:
        """`begins` and `ends` are those of the values: a row for each text, a column for each of `names`."""
        self._data = content.data
        self._names = names
        self._begins = begins
        self._ends = ends
        self.firsts = np.arange(len(begins) + 1, dtype=np.int32) * np.int32(len(names))

    def column(self, name: str) -> pa.StringArray:
        if name not in self._names:
            return pa.nulls(len(self._begins), pa.string())
        at = self._names.index(name)
        return self._cut_out(self._begins[:, at], self._ends[:, at])

    def names(self) -> pa.StringArray:
        rows, kinds = self._begins.shape
        raw = [name.encode() for name in self._names]
        ends = np.cumsum([len(name) for name in raw])
        offsets = np.zeros(rows * kinds + 1, np.int32)
        offsets[1:] = (np.arange(rows)[:, None] * ends[-1] + ends).ravel()
        return text_array(pa.string(), rows * kinds, offsets, b"".join(raw) * rows)

    def values(self) -> pa.StringArray:
        return self._cut_out(self._begins.ravel(), self._ends.ravel())

    def _cut_out(self, begins: Positions, ends: Positions) -> pa.StringArray:
        return cut_out(self._data, begins, ends, pa.string())


def _uniform_pairs(content: _TextBuffer) -> _UniformPairs | None:
    """The pairs of regular texts, if all texts have the names of the first one, none of them twice."""
    at, offsets = content.separators, content.offsets
    rows = len(offsets) - 1
    if not len(at) or len(at) % (2 * rows):
        return None
    both = at.reshape(rows, -1)
    name_ends, value_ends = both[:, 0::2], both[:, 1::2]
    # All texts have the same number of pairs if, with the pairs shared out evenly, each text ends where its last pair does.
    if (value_ends[:, -1] + 1 != offsets[1:]).any():
        return None
    names = []
    begins: Positions = offsets[:-1].astype(np.int64)
    for column in range(name_ends.shape[1]):
        lengths = name_ends[:, column] - begins
        if (lengths != lengths[0]).any():
            return None
        # Texts of numpy drop their last zeros; of one length, they are equal if their bytes are.
        texts = gather(content.data, begins, np.dtype(f"S{lengths[0]}"))
        if (texts != texts[0]).any():
            return None
        names.append(content.data[begins[0] : begins[0] + lengths[0]].tobytes().decode())
        begins = value_ends[:, column] + 1
    return _UniformPairs(content, names, name_ends + 1, value_ends) if len({*names}) == len(names) else None


def _one_by_one(texts: pa.BinaryArray, names: Sequence[str], with_maps: bool) -> PropertyColumns:
    decoded = [decode_properties(text.decode("utf-8", "replace")) for text in texts.to_pylist()]
    maps = pa.array([list(properties.items()) for properties in decoded], MAP) if with_maps else None
    named = {name: pa.array([properties.get(name) for properties in decoded], pa.string()) for name in names}
    return PropertyColumns(maps, named)


def _merged(regular: PropertyColumns, others: PropertyColumns, is_other: Mask) -> PropertyColumns:
    regular_count = len(is_other) - np.count_nonzero(is_other)
    indices = pa.array(np.where(is_other, regular_count + np.cumsum(is_other) - 1, np.cumsum(~is_other) - 1))
    named = {name: pa.concat_arrays([regular.named[name], others.named[name]]).take(indices) for name in regular.named}
    if regular.maps is None or others.maps is None:
        return PropertyColumns(None, named)
    return PropertyColumns(pa.concat_arrays([regular.maps, others.maps]).take(indices), named)


def _not_utf8(texts: pa.BinaryArray) -> Mask | None:
    try:
        texts.cast(pa.string())
    except pa.ArrowInvalid:
        return np.array([_is_not_utf8(text) for text in texts.to_pylist()], np.bool_)
    return None


def _is_not_utf8(text: bytes) -> bool:
    try:
        text.decode()
    except UnicodeDecodeError:
        return True
    return False
