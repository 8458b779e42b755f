"""How values are shown to one visitor: language, time zone, theme, numbers with units."""

from __future__ import annotations

import re
import zoneinfo
from dataclasses import dataclass
from datetime import UTC, datetime, tzinfo
from functools import cache

from markupsafe import Markup

from rocketline.clock import SYSTEM_CLOCK
from rocketline.console.said import said
from rocketline.console.texts import Texts, texts_of, wanted_language

THEMES = ("system", "light", "dark")
DENSITIES = ("compact", "comfortable")
UNKNOWN = "–"

_ENGLISH, _CHINESE = re.compile("[A-Za-z]{2}"), re.compile("[\u4e00-\u9fff]")
_UNITS = ((86400, "d"), (3600, "h"), (60, "min"), (1, "s"))
_SIZES = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")


@cache
def zone_names() -> tuple[str, ...]:
    return (
        "UTC",
        *sorted(name for name in zoneinfo.available_timezones() if "/" in name and not name.startswith("Etc/")),
    )


@cache
def _zone(name: str) -> tzinfo | None:
    """None for a name that is none; the names of this system are no paths, so nothing else is looked up."""
    if name == "UTC":
        return UTC
    return zoneinfo.ZoneInfo(name) if name in zone_names() else None


def zone_of(name: str) -> tzinfo:
    return _zone(name) or UTC


@dataclass(frozen=True)
class Look:
    t: Texts
    zone: str = "UTC"
    theme: str = "system"
    density: str = "compact"

    @classmethod
    def of(cls, cookies: dict[str, str], accept_language: str) -> Look:
        zone = cookies.get("rl_zone", "")
        theme, density = cookies.get("rl_theme", ""), cookies.get("rl_density", "")
        return cls(
            texts_of(wanted_language(cookies.get("rl_language", ""), accept_language)),
            zone if zone and _zone(zone) is not None else "UTC",
            theme if theme in THEMES else THEMES[0],
            density if density in DENSITIES else DENSITIES[0],
        )

    @property
    def language(self) -> str:
        return self.t.language

    def said(self, text: str) -> str | Markup:
        """A sentence of another part of rocketline in this language; what is not known there is marked as English."""
        known = said(text, self.language)
        if known is not None or not _ENGLISH.search(text) or _CHINESE.search(text):
            return known or text
        return Markup('<span lang="en">{}</span>').format(text)

    def unknown(self, reason: str = "") -> Markup:
        why = (said(reason, self.language) or reason) if reason else self.t("common.unknown")
        return Markup('<span class="unknown" title="{}">{}</span>').format(why, UNKNOWN)

    def number(self, value: float | None, reason: str = "") -> str | Markup:
        return self.unknown(reason) if value is None else f"{value:,.0f}"

    def rate(self, value: float | None, reason: str = "") -> str | Markup:
        """Messages a second, with three digits.

        >>> Look(texts_of("en")).rate(0.123), Look(texts_of("en")).rate(1234.5)
        ('0.12', '1,234')
        """
        if value is None:
            return self.unknown(reason)
        if value == 0:
            return "0"
        return f"{value:,.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"

    def percent(self, value: float | None, reason: str = "") -> str | Markup:
        return self.unknown(reason) if value is None else f"{value * 100:.0f} %"

    def size(self, value: float | None, reason: str = "") -> str | Markup:
        """
        >>> Look(texts_of("en")).size(1536)
        '1.5 KiB'
        """
        if value is None:
            return self.unknown(reason)
        unit = 0
        while value >= 1024 and unit < len(_SIZES) - 1:
            value, unit = value / 1024, unit + 1
        return f"{value:.0f} {_SIZES[unit]}" if unit == 0 or value >= 100 else f"{value:.1f} {_SIZES[unit]}"

    def took(self, ms: float | None, reason: str = "") -> str | Markup:
        """
        >>> look = Look(texts_of("en")); look.took(45), look.took(3_200), look.took(192_000), look.took(7_500_000)
        ('45 ms', '3.2 s', '3 min 12 s', '2 h 5 min')
        """
        if ms is None:
            return self.unknown(reason)
        t, seconds = self.t, abs(ms) / 1000
        sign = "-" if ms < 0 else ""
        if seconds < 1:
            text = f"{abs(ms):.0f} {t('unit.ms')}"
        elif seconds < 60:
            text = f"{seconds:.1f} {t('unit.s')}"
        elif seconds < 3600:
            text = f"{int(seconds) // 60} {t('unit.min')} {int(seconds) % 60} {t('unit.s')}"
        elif seconds < 86400:
            text = f"{int(seconds) // 3600} {t('unit.h')} {int(seconds) % 3600 // 60} {t('unit.min')}"
        else:
            text = f"{int(seconds) // 86400} {t('unit.d')} {int(seconds) % 86400 // 3600} {t('unit.h')}"
        return sign + text

    def clock(self, ms: int | None, *, with_ms: bool = True) -> str:
        """A time in the visitor's zone; empty for one that is not known."""
        if not ms or ms < 0 or ms > 253_000_000_000_000:
            return ""
        moment = datetime.fromtimestamp(ms / 1000, zone_of(self.zone))
        text = moment.strftime("%Y-%m-%d %H:%M:%S")
        return f"{text}.{ms % 1000:03d}" if with_ms else text

    def when(self, ms: int | None, reason: str = "") -> Markup:
        """A time, with how long ago it was as its title."""
        shown = self.clock(ms)
        if not shown or ms is None:
            return self.unknown(reason)
        return Markup('<time datetime="{}" title="{} · {}">{}</time>').format(
            _iso(ms), self.ago_text(ms), self.zone, shown
        )

    def ago(self, ms: int | None, reason: str = "") -> Markup:
        """How long ago something was, with the time as its title."""
        shown = self.clock(ms)
        if not shown or ms is None:
            return self.unknown(reason)
        return Markup('<time datetime="{}" title="{} {}">{}</time>').format(
            _iso(ms), shown, self.zone, self.ago_text(ms)
        )

    def ago_text(self, ms: int) -> str:
        past_ms = SYSTEM_CLOCK.now_ms() - ms
        if abs(past_ms) < 1000:
            return self.t("common.just_now")
        key = "common.ago" if past_ms >= 0 else "common.ahead"
        return self.t(key, time=self._about(abs(past_ms)))

    def _about(self, ms: int) -> str:
        """A duration in its largest unit: lists are read for which is older."""
        seconds = ms // 1000
        size, unit = next((pair for pair in _UNITS if seconds >= pair[0]), _UNITS[-1])
        return f"{seconds // size} {self.t(f'unit.{unit}')}"

    def term(self, prefix: str, word: str) -> str:
        """A word of ours in this language; a word that a broker made up stays as it is."""
        key = f"{prefix}.{word.replace(' ', '_')}"
        return self.t(key) if self.t.has(key) else word


def _iso(ms: int) -> str:
    return datetime.fromtimestamp(ms / 1000, UTC).isoformat(timespec="milliseconds")
