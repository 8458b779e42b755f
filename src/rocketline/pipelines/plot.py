"""Small plots as SVG files: lines over time, and bars. No library is needed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from xml.sax.saxutils import escape

_WIDTH, _HEIGHT, _LEFT, _TOP, _BOTTOM = 900, 420, 90, 50, 60
_COLOURS = ("#2563eb", "#dc2626", "#059669", "#d97706", "#7c3aed", "#0891b2", "#be185d", "#4d7c0f")


def plot_lines(path: Path, title: str, series: Mapping[str, Sequence[tuple[float, float]]], unit: str) -> None:
    """Plot one line for each name, through points (seconds, value)."""
    points = [point for line in series.values() for point in line]
    last = max((x for x, _ in points), default=0.0) or 1.0
    top = max((y for _, y in points), default=0.0) or 1.0
    parts = _frame(title, top, unit)
    parts += [_text(_LEFT, _HEIGHT - 20, "0 s"), _text(_WIDTH - 60, _HEIGHT - 20, f"{last:,.0f} s")]
    for number, (name, line) in enumerate(series.items()):
        colour = _COLOURS[number % len(_COLOURS)]
        places = " ".join(f"{_x(x / last):.1f},{_y(y / top):.1f}" for x, y in line)
        parts.append(f'<polyline points="{places}" fill="none" stroke="{colour}" stroke-width="2"/>')
        parts.append(_text(_LEFT + 10, _TOP + 16 * (number + 1), name, colour))
    _write(path, parts)


def plot_bars(path: Path, title: str, bars: Mapping[str, Mapping[str, float]], unit: str) -> None:
    """Plot a group of bars for each name, such as percentiles of a latency."""
    top = max((value for group in bars.values() for value in group.values()), default=0.0) or 1.0
    parts = _frame(title, top, unit)
    width = 1 / max(1, len(bars))
    for at, (name, group) in enumerate(bars.items()):
        for number, (label, value) in enumerate(group.items()):
            left = _x(width * (at + 0.1 + 0.8 * number / len(group)))
            breadth = (_WIDTH - _LEFT - 20) * width * 0.7 / len(group)
            y = _y(value / top)
            colour = _COLOURS[number % len(_COLOURS)]
            shape = f'x="{left:.1f}" y="{y:.1f}" width="{breadth:.1f}" height="{_y(0) - y:.1f}"'
            parts.append(
                f'<rect {shape} fill="{colour}"><title>{escape(f"{label}: {value:,.1f} {unit}")}</title></rect>'
            )
            parts.append(_text(left, y - 4, label, colour))
        parts.append(_text(_x(width * (at + 0.1)), _HEIGHT - 35, name))
    _write(path, parts)


def _frame(title: str, top: float, unit: str) -> list[str]:
    parts = [_text(_LEFT, 28, title)]
    for step in range(5):
        y = _y(step / 4)
        parts.append(f'<line x1="{_LEFT}" x2="{_WIDTH - 20}" y1="{y:.1f}" y2="{y:.1f}" stroke="#e5e7eb"/>')
        parts.append(_text(8, y + 4, f"{top * step / 4:,.0f} {unit}"))
    return parts


def _x(share: float) -> float:
    return _LEFT + share * (_WIDTH - _LEFT - 20)


def _y(share: float) -> float:
    return _HEIGHT - _BOTTOM - share * (_HEIGHT - _BOTTOM - _TOP)


def _text(x: float, y: float, text: str, colour: str = "#111827") -> str:
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" font-family="sans-serif" font-size="12" fill="{colour}">{escape(text)}</text>'
    )


def _write(path: Path, parts: list[str]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    head = f'<svg xmlns="http://www.w3.org/2000/svg" width="{_WIDTH}" height="{_HEIGHT}" style="background:white">'
    path.write_text("\n".join([head, *parts, "</svg>\n"]), encoding="utf-8")
