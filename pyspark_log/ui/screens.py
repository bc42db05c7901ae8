"""What has been drawn: each page once for all who look at it, and only if what it shows has changed."""

from __future__ import annotations

import asyncio
import hashlib
from collections import OrderedDict
from typing import TYPE_CHECKING, NamedTuple

import msgspec

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Hashable

PAGES_KEPT = 200
SHARE = 0.05
"""The part of the time in which pages may be drawn, all that are open together."""
DELAY_SECONDS_MAX = 5.0
"""A page is drawn anew after this time, whatever it costs."""
OPEN_SECONDS = 5.0
"""A page is open for so long after it was asked for."""


class Screen(NamedTuple):
    """The content of a page as it was drawn once."""

    html: str
    title: str
    status: int = 200
    as_of: int = 0
    """When the oldest part of what it shows was read (ms)."""
    seconds: float = 0.0
    """The time of the processor that it took to draw it."""
    is_final: bool = True
    """Whether it would be the same again. What could not be read is tried again."""

    @property
    def name(self) -> str:
        """What an open page says that it shows."""
        return hashlib.blake2b(self.html.encode(errors="replace"), digest_size=12).hexdigest()


class _Kept(msgspec.Struct):
    drawing: asyncio.Future[Screen]
    mark: Hashable
    asked: float
    due: float = 0.0

    def is_newest(self, mark: Hashable, now: float) -> bool:
        """Return whether this is what is to be shown now, also if it is still being drawn."""
        if not self.drawing.done():
            return True
        if self.drawing.cancelled() or self.drawing.exception() is not None:
            return False
        return now < self.due or (self.mark == mark and self.drawing.result().is_final)


class Screens:
    """The newest screens of the pages that somebody looks at. Used by the event loop."""

    def __init__(self) -> None:
        self._kept: OrderedDict[str, _Kept] = OrderedDict()

    async def get(self, page: str, mark: Hashable, draw: Callable[[], Awaitable[Screen]]) -> Screen:
        """Return the screen of a page. With the same mark, which says what it is drawn from, it is the same."""
        now = asyncio.get_running_loop().time()
        kept = self._kept.get(page)
        if kept is None or not kept.is_newest(mark, now):
            kept = self._kept[page] = _Kept(asyncio.ensure_future(self._drawn(page, draw)), mark, now)
        kept.asked = now
        self._kept.move_to_end(page)
        while len(self._kept) > PAGES_KEPT:
            self._kept.popitem(last=False)
        return await asyncio.shield(kept.drawing)

    async def _drawn(self, page: str, draw: Callable[[], Awaitable[Screen]]) -> Screen:
        new = await draw()
        now = asyncio.get_running_loop().time()
        is_open = sum(each.asked > now - OPEN_SECONDS for each in self._kept.values())
        if (kept := self._kept.get(page)) is not None:
            kept.due = now + min(DELAY_SECONDS_MAX, new.seconds * is_open / SHARE)
        return new
