"""Properties of many records at once: the text `name 0x01 value 0x02 ...` of each as a map, or only some names as columns.

Nearly every text is *even*: pairs one after the other, each with both separators, valid UTF-8, no name twice. Those are
split by finding all separators of a batch together. The others, which readers must put up with (`protocol.properties`),
are decoded one by one, and their rows are put back in place. And in nearly every batch, which one producer filled, all even
texts have the same names in the same order: then names need not be looked at one by one.

The compiled twin goes through the texts where they lie, and leaves those that are not even.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from rocketline._impl import compiled_only
from rocketline.protocol.properties import decode_properties
from rocketline.spark.record_table import Buffer, Positions, cut_out, gather, text_array

MAP = pa.map_(pa.string(), pa.string())

_NAME_END, _VALUE_END = 1, 2
_MAX_FLAGS = 1 << 26
"""Memory for finding names that occur twice: a byte for each combination of a row and a name."""

Mask = npt.NDArray[np.bool_]

_take_properties: Callable[..., tuple[list[int], Sequence[bytes], Sequence[Sequence[bytes]]]] | None = compiled_only(
    "take_properties"
)


@dataclass(frozen=True)
class PropertyColumns:
    """What was asked for of the properties of a batch."""

    maps: pa.MapArray | None
    named: dict[str, pa.StringArray]
    """A column for each name, null where a record has no such property."""


def read_properties(
    buffer: Buffer, begins: Positions, ends: Positions, names: Sequence[str], with_maps: bool
) -> PropertyColumns:
    """The properties whose texts lie between `begins` and `ends`."""
    if _take_properties is None:
        return split_properties(cut_out(buffer, begins, ends), names, with_maps)
    odd, maps, columns = _take_properties(buffer, begins, ends, tuple([name.encode() for name in names]), with_maps)
    count = len(begins) - len(odd)
    named = {name: _column(count, *column) for name, column in zip(names, columns)}
    even = PropertyColumns(_maps(*maps) if with_maps else None, named)
    if not odd:
        return even
    is_odd = np.zeros(len(begins), np.bool_)
    is_odd[odd] = True
    others = cut_out(buffer, begins[odd], ends[odd])
    return _merged(even, _one_by_one(others, names, with_maps), is_odd)


def _column(count: int, offsets: bytes, data: bytes, present: bytes) -> pa.StringArray:
    """A column of texts that the compiled twin found; it has a byte for each row, 1 or 0."""
    valid = None
    if 0 in present:
        valid = pa.py_buffer(np.packbits(np.frombuffer(present, np.uint8), bitorder="little"))
    return text_array(pa.string(), count, offsets, data, valid)


def _maps(firsts: bytes, *texts: bytes) -> pa.MapArray:
    name_offsets, name_data, value_offsets, value_data = texts
    pairs = len(name_offsets) // 4 - 1
    names = text_array(pa.string(), pairs, name_offsets, name_data)
    values = text_array(pa.string(), pairs, value_offsets, value_data)
    return pa.MapArray.from_arrays(pa.array(np.frombuffer(firsts, np.int32)), names, values)


def split_properties(texts: pa.BinaryArray, names: Sequence[str], with_maps: bool) -> PropertyColumns:
    """The properties of each text."""
    odd = np.zeros(len(texts), np.bool_)
    even_texts = texts
    while True:
        content = _Content(even_texts)
        found = content.odd_rows()
        if found is None:
            alike = _alike(content)
            if alike is not None:
                pairs: _Pairs | _AlikePairs = alike
                break
            pairs = mixed = _Pairs(content)
            found = mixed.rows_with_twins()
            if found is None:
                break
        odd[np.flatnonzero(~odd)[found]] = True
        even_texts = texts.filter(pa.array(~odd))
    even = PropertyColumns(pairs.maps() if with_maps else None, {name: pairs.column(name) for name in names})
    if even_texts is texts:
        return even
    return _merged(even, _one_by_one(texts.filter(pa.array(odd)), names, with_maps), odd)


class _Content:
    """The bytes of all texts, one after the other; where each text begins and ends in them, and where separators are."""

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

    def odd_rows(self) -> Mask | None:
        """Which texts are not pairs with all their separators, or not UTF-8; None when all are well."""
        wrong = _not_utf8(self.texts)
        if self._separators_are_even():
            return wrong
        return self._uneven_rows() if wrong is None else wrong | self._uneven_rows()

    def _separators_are_even(self) -> bool:
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

    def _uneven_rows(self) -> Mask:
        at, offsets = self.separators, self.offsets
        firsts = np.searchsorted(at, offsets)
        counts = np.diff(firsts)
        odd: Mask = counts % 2 == 1
        filled = np.flatnonzero(np.diff(offsets) > 0)
        odd[filled[self.data[offsets[1:][filled] - 1] != _VALUE_END]] = True
        rows = np.repeat(np.arange(len(counts)), counts)
        place = np.arange(len(at)) - firsts[rows]
        # A name or value is empty when its separator stands right behind the one before it, or at the text's begin.
        begins = np.where(place == 0, offsets[rows], np.concatenate([[0], at[:-1] + 1]))
        odd[rows[(self.data[at] != place % 2 + 1) | (at == begins)]] = True
        return odd


class _Pairs:
    """Names and values of even texts, laid end to end; text number i has the pairs `offsets[i]` to `offsets[i + 1]`."""

    def __init__(self, content: _Content) -> None:
        at = content.separators
        cuts = np.zeros(2 * len(at) + 1, np.int32)
        cuts[1::2] = at
        cuts[2::2] = at + 1
        # Elements in turn: a name, its separator, a value, its separator. UTF-8 cut at an ASCII character stays UTF-8.
        laid = pa.Array.from_buffers(pa.string(), 2 * len(at), [None, pa.py_buffer(cuts), pa.py_buffer(content.data)])
        self._names = laid.take(pa.array(np.arange(0, 2 * len(at), 4, dtype=np.int32)))
        self._values = laid.take(pa.array(np.arange(2, 2 * len(at), 4, dtype=np.int32)))
        self._offsets = np.searchsorted(at[1::2], content.offsets).astype(np.int32)
        encoded = self._names.dictionary_encode()
        self._codes = encoded.indices.to_numpy()
        self._distinct: list[str] = encoded.dictionary.to_pylist()

    def _rows(self) -> npt.NDArray[Any]:
        """The number of the text each pair is in."""
        return np.repeat(np.arange(len(self._offsets) - 1), np.diff(self._offsets))

    def rows_with_twins(self) -> Mask | None:
        """Which texts have a name twice; None when no text does."""
        count, kinds = len(self._offsets) - 1, len(self._distinct)
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
        count = len(self._offsets) - 1
        if name not in self._distinct:
            return pa.nulls(count, pa.string())
        at = np.flatnonzero(self._codes == self._distinct.index(name))
        if len(at) == count:
            return self._values.take(pa.array(at))
        indices = np.full(count, -1, np.int64)
        indices[self._rows()[at]] = at
        return self._values.take(pa.array(indices, mask=indices < 0))

    def maps(self) -> pa.MapArray:
        return pa.MapArray.from_arrays(pa.array(self._offsets), self._names, self._values)


class _AlikePairs:
    """Names and values of even texts that all have the same names in the same order, given as those of the first."""

    def __init__(self, content: _Content, names: list[str], begins: Positions, ends: Positions) -> None:
        """`begins` and `ends` are those of the values: a row for each text, a column for each name."""
        self._data = content.data
        self._names = names
        self._begins = begins
        self._ends = ends

    def column(self, name: str) -> pa.StringArray:
        if name not in self._names:
            return pa.nulls(len(self._begins), pa.string())
        at = self._names.index(name)
        return self._cut_out(self._begins[:, at], self._ends[:, at])

    def maps(self) -> pa.MapArray:
        rows, kinds = self._begins.shape
        raw = [name.encode() for name in self._names]
        ends = np.cumsum([len(name) for name in raw])
        offsets = np.zeros(rows * kinds + 1, np.int32)
        offsets[1:] = (np.arange(rows)[:, None] * ends[-1] + ends).ravel()
        texts = pa.py_buffer(b"".join(raw) * rows)
        names = pa.Array.from_buffers(pa.string(), rows * kinds, [None, pa.py_buffer(offsets), texts])
        values = self._cut_out(self._begins.ravel(), self._ends.ravel())
        return pa.MapArray.from_arrays(pa.array(np.arange(rows + 1, dtype=np.int32) * kinds), names, values)

    def _cut_out(self, begins: Positions, ends: Positions) -> pa.StringArray:
        return cut_out(self._data, begins, ends, pa.string())


def _alike(content: _Content) -> _AlikePairs | None:
    """The pairs of even texts, if all texts have the names of the first one, none of them twice."""
    at, offsets = content.separators, content.offsets
    rows = len(offsets) - 1
    if not len(at) or len(at) % (2 * rows):
        return None
    both = at.reshape(rows, -1)
    name_ends, value_ends = both[:, 0::2], both[:, 1::2]
    # Every text has as many pairs as the others, if the last one of its share ends where the text does.
    if (value_ends[:, -1] + 1 != offsets[1:]).any():
        return None
    names = []
    begins: Positions = offsets[:-1].astype(np.int64)
    for column in range(name_ends.shape[1]):
        lengths = name_ends[:, column] - begins
        if (lengths != lengths[0]).any():
            return None
        # Texts of numpy end before their last zeros: of one length, they are equal if their bytes are.
        texts = gather(content.data, begins, np.dtype(f"S{lengths[0]}"))
        if (texts != texts[0]).any():
            return None
        names.append(content.data[begins[0] : begins[0] + lengths[0]].tobytes().decode())
        begins = value_ends[:, column] + 1
    return _AlikePairs(content, names, name_ends + 1, value_ends) if len({*names}) == len(names) else None


def _one_by_one(texts: pa.BinaryArray, names: Sequence[str], with_maps: bool) -> PropertyColumns:
    decoded = [decode_properties(text.decode("utf-8", "replace")) for text in texts.to_pylist()]
    maps = pa.array([list(properties.items()) for properties in decoded], MAP) if with_maps else None
    named = {name: pa.array([properties.get(name) for properties in decoded], pa.string()) for name in names}
    return PropertyColumns(maps, named)


def _merged(even: PropertyColumns, others: PropertyColumns, is_other: Mask) -> PropertyColumns:
    even_count = len(is_other) - np.count_nonzero(is_other)
    indices = pa.array(np.where(is_other, even_count + np.cumsum(is_other) - 1, np.cumsum(~is_other) - 1))
    named = {name: pa.concat_arrays([even.named[name], others.named[name]]).take(indices) for name in even.named}
    if even.maps is None or others.maps is None:
        return PropertyColumns(None, named)
    return PropertyColumns(pa.concat_arrays([even.maps, others.maps]).take(indices), named)


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
