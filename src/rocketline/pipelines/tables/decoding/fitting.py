"""Values of a decoded body as values of columns: by name, null where there is none, and never cut or rounded silently.

What a body has and the columns have not is left out; a body may be older or newer than the columns.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import date, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from rocketline.pipelines.tables.decoding.interface import BadBody

if TYPE_CHECKING:
    from pyspark.sql.types import DataType

Fit = Callable[[Any], Any]
_WHOLE = {"tinyint": 7, "smallint": 15, "int": 31, "bigint": 63}


def fit_for(kind: DataType, name: str = "") -> Fit:
    """A function that makes a value of this type, for Arrow; it raises BadBody with the column's name."""
    from pyspark.sql import types

    if isinstance(kind, types.StructType):
        fields = [(f.name, fit_for(f.dataType, f"{name}.{f.name}" if name else f.name)) for f in kind]
        return lambda value: _struct(value, fields, name)
    if isinstance(kind, types.ArrayType):
        item = fit_for(kind.elementType, f"{name}[]")
        return lambda value: None if value is None else [item(part) for part in value]
    if isinstance(kind, types.MapType):
        part = fit_for(kind.valueType, f"{name}[]")
        return lambda value: None if value is None else [(str(key), part(item)) for key, item in value.items()]
    return _scalar(kind.simpleString(), name)


def _struct(value: Any, fields: list[tuple[str, Fit]], name: str) -> Any:
    if value is None:
        return None
    if not isinstance(value, Mapping):
        raise _wrong(name, value, "a struct")
    lower = {str(key).lower(): item for key, item in value.items()}
    return {key: fit(lower.get(key.lower())) for key, fit in fields}


def _scalar(wanted: str, name: str) -> Fit:
    bits = _WHOLE.get(wanted)

    def fit(value: Any) -> Any:
        if value is None:
            return None
        if bits is not None:
            if type(value) is int and -(1 << bits) <= value < 1 << bits:
                return value
        elif wanted in ("float", "double"):
            if type(value) in (int, float):
                return float(value)
        elif wanted == "string":
            return value if isinstance(value, str) else str(value)
        elif type(value) in _PYTHON.get(wanted.partition("(")[0], ()):
            return value
        raise _wrong(name, value, wanted)

    return fit


_PYTHON: Mapping[str, tuple[type, ...]] = {
    "boolean": (bool,), "binary": (bytes,), "date": (date,), "timestamp": (datetime,), "timestamp_ntz": (datetime,),
    "decimal": (Decimal, int),
}  # fmt: skip


def _wrong(name: str, value: Any, wanted: str) -> BadBody:
    return BadBody(f"column {name}: {str(value)[:100]!r} is no {wanted}")
