"""What has been drawn: each page once for all who look at it, and for them only the lines that have changed.

A screen is the HTML of a page's content by lines. An open page says which screen it shows, and is sent the new one as
a list: text for a line that is new, and where some lines begin in the former screen and how many they are.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections import OrderedDict
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Hashable

PAGES_KEPT = 200
SCREENS_KEPT = 4
"""Of each page. Who shows an older one is sent a whole screen."""
SHARE = 0.05
"""The part of the time in which pages may be drawn, all that are open together."""
DELAY_SECONDS_MAX = 5.0
"""A page is drawn anew after this time, whatever it costs."""
OPEN_SECONDS = 5.0
"""A page is open for so long after it was asked for."""


class Screen(NamedTuple):
    """The content of a page as it was drawn once."""

    lines: list[str]
    name: str
    status: int
    title: str
    mark: Hashable
    """What it was drawn from. With the same mark it would be the same screen."""
    as_of: int = 0
    """When the oldest part of what it shows was read (ms)."""
    seconds: float = 0.0
    """The time of the processor that it took to draw it."""


def screen(html: str, status: int, title: str, mark: Hashable) -> Screen:
    """Return the screen of some HTML."""
    name = hashlib.blake2b(html.encode(errors="replace"), digest_size=12).hexdigest()
    return Screen(html.split("\n"), name, status, title, mark)


def changed(before: Screen | None, now: Screen) -> list[Any] | None:
    r"""Return what makes one screen of another: texts, and `[start, count]` for lines of the former; None if nothing.

    >>> changed(screen("a\nb\nc", 200, "", 0), screen("a\nb\nd\nc", 200, "", 1))
    [[0, 2], 'd', [2, 1]]
    """
    if before is None:
        return list(now.lines)
    if before.name == now.name:
        return None
    places: dict[str, list[int]] = {}
    for place, line in enumerate(before.lines):
        places.setdefault(line, []).append(place)
    change: list[Any] = []
    following = 0
    for line in now.lines:
        found = places.get(line)
        if found is None:
            change.append(line)
            continue
        is_next = following < len(before.lines) and before.lines[following] == line
        at = following if is_next else found[0]
        if change and isinstance(change[-1], list) and sum(change[-1]) == at:
            change[-1][1] += 1
        else:
            change.append([at, 1])
        following = at + 1
    return change


class Screens:
    """The newest screens of the pages that somebody looks at. Used by the event loop."""

    def __init__(self) -> None:
        self._kept: OrderedDict[str, list[Screen]] = OrderedDict()
        self._drawing: dict[str, asyncio.Task[Screen]] = {}
        self._due: dict[str, float] = {}
        self._asked: dict[str, float] = {}

    async def get(self, page: str, mark: Hashable, draw: Callable[[], Awaitable[Screen]]) -> Screen:
        """Return the screen of a page, which is drawn by one caller at a time, and only if `mark` is another."""
        loop = asyncio.get_running_loop()
        self._asked[page] = loop.time()
        kept = self._kept.get(page)
        if kept and (kept[0].mark == mark or loop.time() < self._due.get(page, 0.0)):
            self._kept.move_to_end(page)
            return kept[0]
        if page not in self._drawing:
            self._drawing[page] = loop.create_task(self._draw(page, draw))
        return await asyncio.shield(self._drawing[page])

    async def _draw(self, page: str, draw: Callable[[], Awaitable[Screen]]) -> Screen:
        try:
            new = await draw()
        finally:
            del self._drawing[page]
        now = asyncio.get_running_loop().time()
        self._asked = {each: at for each, at in self._asked.items() if at > now - OPEN_SECONDS}
        self._due[page] = now + min(DELAY_SECONDS_MAX, new.seconds * len(self._asked) / SHARE)
        kept = [new, *(each for each in self._kept.pop(page, []) if each.name != new.name)]
        self._kept[page] = kept[:SCREENS_KEPT]
        while len(self._kept) > PAGES_KEPT:
            self._due.pop(self._kept.popitem(last=False)[0], None)
        return new

    def known(self, page: str, name: str) -> Screen | None:
        """Return a screen of a page that is still kept."""
        return next((each for each in self._kept.get(page, []) if each.name == name), None)
