"""Plots as SVG: small panels, in colours that are readable on light and on dark pages."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING
from xml.sax.saxutils import escape

if TYPE_CHECKING:
    from collections.abc import Sequence

COLUMNS = 3
WIDTH, HEIGHT = 300, 190
"""The size of a panel, in pixels."""
LEFT, RIGHT, TOP, BOTTOM = 46, 12, 34, 30
GREY, LINE, MARK = "#808080", "#3b82f6", "#d97706"
TICKS = 4
BAR, NAMES, VALUES = 22, 92, 50
"""The height of a bar, and the room for its name and its value, in pixels."""


@dataclass(frozen=True)
class Panel:
    """One measure over the days 1, 2, 3, ..."""

    title: str
    values: Sequence[float]


@dataclass(frozen=True)
class Bars:
    """One job, and what it took or reached with each of several systems. The first one is emphasized."""

    title: str
    unit: str
    values: Sequence[tuple[str, float]]


def draw(panels: Sequence[Panel], mark: float, mark_says: str) -> str:
    """Return the panels as one SVG, with a vertical line at the day `mark`."""
    says = [mark_says, *[""] * len(panels)]
    return _laid_out([_panel(panel, mark, says[number]) for number, panel in enumerate(panels)], HEIGHT)


def draw_bars(jobs: Sequence[Bars]) -> str:
    """Return a panel for each job as one SVG; each has a scale of its own."""
    height = TOP + BAR * max(len(job.values) for job in jobs) + BOTTOM // 2
    return _laid_out([_bars(job) for job in jobs], height)


def _laid_out(panels: Sequence[Sequence[str]], height: int) -> str:
    width, whole = WIDTH * COLUMNS, height * math.ceil(len(panels) / COLUMNS)
    size = f'viewBox="0 0 {width} {whole}" width="{width}" height="{whole}"'
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" {size} font-family="sans-serif" font-size="11" fill="{GREY}">']
    for number, panel in enumerate(panels):
        x, y = number % COLUMNS * WIDTH, number // COLUMNS * height
        parts += [f'<g transform="translate({x},{y})">', *panel, "</g>"]
    return "\n".join([*parts, "</svg>", ""])


def _bars(job: Bars) -> list[str]:
    longest = max(value for _, value in job.values)
    title = f"{job.title}, {job.unit}"
    parts = [f'<text x="8" y="{TOP - 14}" font-size="13" font-weight="bold">{escape(title)}</text>']
    for number, (name, value) in enumerate(job.values):
        y, length = TOP + number * BAR, (WIDTH - NAMES - VALUES) * value / longest
        middle, colour = y + BAR // 2 + 3, GREY if number else LINE
        parts += [
            f'<text x="{NAMES - 6}" y="{middle}" text-anchor="end">{escape(name)}</text>',
            f'<path d="M{NAMES} {y + 3}h{length:.1f}v{BAR - 6}h-{length:.1f}z" fill="{colour}"/>',
            f'<text x="{NAMES + length + 5:.1f}" y="{middle}">{_label(value)}</text>',
        ]
    return parts


def _panel(panel: Panel, mark: float, mark_says: str) -> list[str]:
    top = _round_up(max(panel.values))
    right, bottom = WIDTH - RIGHT, HEIGHT - BOTTOM

    def across(day: float) -> float:
        return LEFT + (right - LEFT) * day / len(panel.values)

    def up(value: float) -> float:
        return bottom - (bottom - TOP) * value / top

    title = f'<text x="{LEFT}" y="{TOP - 14}" font-size="13" font-weight="bold">{escape(panel.title)}</text>'
    parts = [title]
    for tick in range(TICKS + 1):
        value = top * tick / TICKS
        y = up(value)
        parts.append(f'<path d="M{LEFT} {y:.1f}H{right}" stroke="{GREY}" stroke-opacity="0.3"/>')
        parts.append(f'<text x="{LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{_label(value)}</text>')
    step = max(1, len(panel.values) // 4 // 7 * 7)
    for day in range(0, len(panel.values) + 1, step):
        says = f"day {day}" if day else "0"
        parts.append(f'<text x="{across(day):.1f}" y="{bottom + 16}" text-anchor="middle">{says}</text>')
    parts.append(
        f'<path d="M{across(mark):.1f} {TOP}V{bottom}" stroke="{MARK}" stroke-dasharray="4 3"/>'
        f'<text x="{across(mark) + 5:.1f}" y="{bottom - 6}" fill="{MARK}">{escape(mark_says)}</text>'
    )
    points = " ".join(f"{across(day):.1f},{up(value):.1f}" for day, value in enumerate(panel.values, 1))
    parts.append(f'<polyline points="{points}" fill="none" stroke="{LINE}" stroke-width="2"/>')
    return parts


def _round_up(value: float) -> float:
    """Return the next number above `value` that divides well: 1, 1.2, 1.6, 2, 2.4, 3.2, 4, 6, 8 or 10 of its power."""
    power: float = 10 ** math.floor(math.log10(value))
    tops = [power * step for step in (1, 1.2, 1.6, 2, 2.4, 3.2, 4, 6, 8, 10, 12)]
    return next(top for top in tops if top >= value * 1.05)


def _label(value: float) -> str:
    return f"{value:,.0f}" if value >= 10 or value == int(value) else f"{value:.2f}".rstrip("0")
