"""Options of a data source, read once on the driver.

Spark passes options as texts with lower-cased names. A source reads each one by its documented name and type, and at
the end refuses the others, suggesting the name that was probably meant: an option with a typing error would otherwise
be ignored, and the wrong data read.

    options = Options("rocketmq-log", given)
    path = options.required("path", "the folder given to `rocketline up --data`")
    check = options.flag("checkCrc", True)
    options.refuse_others()

A source puts them into a frozen dataclass that can be pickled.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from difflib import get_close_matches

from rocketline.errors import ConfigError

_SIZES = {"": 1, "b": 1, "k": 1 << 10, "kb": 1 << 10, "m": 1 << 20, "mb": 1 << 20, "g": 1 << 30, "gb": 1 << 30}
_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}
_TRUTHS = {"true": True, "false": False}

# Spark adds these itself: for a table made with SQL, and for a flow of a declarative pipeline.
_OPTIONS_OF_SPARK = frozenset({"serialization.format", "queryname"})


class Options:
    """The options given to one source; methods that read one raise ConfigError when its value is wrong."""

    def __init__(self, source: str, given: Mapping[str, str]) -> None:
        self._source = source
        self._given = {name.lower(): str(value) for name, value in given.items()}
        self._known: list[str] = []

    def text(self, name: str, default: str | None = None, aliases: Sequence[str] = ()) -> str | None:
        """An option without blanks around it; an empty one counts as not given."""
        self._known += (name, *aliases)
        found = {key: self._given[key.lower()].strip() for key in (name, *aliases) if key.lower() in self._given}
        if len(set(found.values())) > 1:
            raise self.wrong(f"{' and '.join(found)} are the same option and must not differ")
        return next((value for value in found.values() if value), default)

    def required(self, name: str, meaning: str, aliases: Sequence[str] = ()) -> str:
        value = self.text(name, aliases=aliases)
        if value is None:
            raise self.wrong(f"option {name!r} is needed: {meaning}")
        return value

    def flag(self, name: str, default: bool) -> bool:
        value = self.text(name)
        if value is None:
            return default
        if value.lower() not in _TRUTHS:
            raise self.wrong(f"option {name!r} must be true or false, not {value!r}")
        return _TRUTHS[value.lower()]

    def choice(self, name: str, allowed: Sequence[str], default: str) -> str:
        """One of the allowed words, in upper or lower case."""
        value = self.text(name, default)
        assert value is not None
        for word in allowed:
            if word.lower() == value.lower():
                return word
        raise self.wrong(f"option {name!r} must be one of {', '.join(allowed)}, not {value!r}")

    def number(self, name: str, minimum: int = 0, maximum: int = (1 << 63) - 1) -> int | None:
        value = self.text(name)
        if value is None:
            return None
        try:
            number = int(value)
        except ValueError:
            raise self.wrong(f"option {name!r} must be a whole number, not {value!r}") from None
        if not minimum <= number <= maximum:
            raise self.wrong(f"option {name!r} must be from {minimum} to {maximum}, not {number}")
        return number

    def rate(self, name: str) -> float | None:
        """A rate: a number above 0."""
        value = self.text(name)
        if value is None:
            return None
        try:
            number = float(value)
        except ValueError:
            number = 0.0
        if not 0 < number < float("inf"):
            raise self.wrong(f"option {name!r} must be a number above 0, not {value!r}")
        return number

    def size(self, name: str, default: int, minimum: int = 1, maximum: int | None = None) -> int:
        """A number of bytes such as 134217728, 128m or 1g."""
        value = self.text(name)
        if value is None:
            return default
        digits = value.rstrip("bBkKmMgG")
        unit = value[len(digits) :].lower()
        if not (digits.isascii() and digits.isdigit() and unit in _SIZES):
            raise self.wrong(f"option {name!r} must be a size such as 134217728, 128m or 1g, not {value!r}")
        if int(digits) * _SIZES[unit] < minimum:
            raise self.wrong(f"option {name!r} must be at least {minimum} bytes, not {value!r}")
        if maximum is not None and int(digits) * _SIZES[unit] > maximum:
            raise self.wrong(f"option {name!r} must be at most {maximum} bytes, not {value!r}")
        return int(digits) * _SIZES[unit]

    def seconds(self, name: str, default: float) -> float:
        """A length of time such as 500ms, 30s, 15m or 1h."""
        value = self.text(name)
        if value is None:
            return default
        digits = value.rstrip("mshMSH ")
        unit = value[len(digits) :].strip().lower()
        if not (digits.isascii() and digits.isdigit() and unit in _SECONDS and int(digits)):
            raise self.wrong(f"option {name!r} must be a length of time such as 500ms, 30s, 15m or 1h, not {value!r}")
        return int(digits) * _SECONDS[unit]

    def time_ms(self, name: str) -> int | None:
        """A point in time: milliseconds since 1970, or ISO 8601; without a time zone it is UTC."""
        value = self.text(name)
        if value is None:
            return None
        if value.isascii() and value.isdigit():
            return int(value)
        try:
            time = datetime.fromisoformat(value)
        except ValueError:
            raise self.wrong(
                f"option {name!r} must be milliseconds since 1970 or a time such as 2026-01-31T12:00:00Z, not {value!r}"
            ) from None
        zoned = time if time.tzinfo else time.replace(tzinfo=UTC)
        return round(zoned.timestamp() * 1000)

    def names(self, name: str, aliases: Sequence[str] = ()) -> tuple[str, ...]:
        """Names separated by commas, each once; empty when the option is not given."""
        value = self.text(name, "", aliases) or ""
        return tuple(dict.fromkeys(part.strip() for part in value.split(",") if part.strip()))

    def given(self, *names: str) -> list[str]:
        """Which of these options were set."""
        return [name for name in names if self._given.get(name.lower(), "").strip()]

    def at_most_one(self, *names: str) -> str | None:
        """The one of these options that was set; two of them contradict each other."""
        found = self.given(*names)
        if len(found) > 1:
            raise self.wrong(f"{' and '.join(found)} contradict each other: give one of them")
        return found[0] if found else None

    def with_prefix(self, prefix: str) -> dict[str, str]:
        """Options with this prefix, by their names without it; names are in lower case."""
        found = {name: value for name, value in self._given.items() if name.startswith(prefix.lower())}
        self._known += found
        return {name[len(prefix) :]: value for name, value in found.items()}

    def refuse_others(self) -> None:
        """ConfigError for the first option that was not read."""
        known = {name.lower(): name for name in self._known}
        for name in sorted(self._given.keys() - known.keys() - _OPTIONS_OF_SPARK):
            meant = get_close_matches(name, known, n=1, cutoff=0.6)
            hint = f", did you mean {known[meant[0]]!r}?" if meant else f"; there are {', '.join(self._known)}"
            raise self.wrong(f"unknown option {name!r}{hint}")

    def wrong(self, problem: str) -> ConfigError:
        """An error that names the source."""
        return ConfigError(f"{self._source}: {problem}")
