"""The pages as one document that needs no server: a file for a ticket or a post-mortem, and what notebooks show.

The templates are those of the server. What only a server could do is taken out of their HTML afterwards: forms, and
links to what the document does not have become text.
"""

from __future__ import annotations

from html import escape
from html.parser import HTMLParser
from typing import TYPE_CHECKING, Any

from pyspark_log import opening
from pyspark_log.documents.text import number, time_of
from pyspark_log.ui import content, pages
from pyspark_log.ui.past import Past
from pyspark_log.ui.view import Watch

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from pyspark_log.ui.view import ClusterView
    from pyspark_log_storage.stores.storage_options import StorageOptions

PARTS_MAX = 200
"""So many topics, and so many groups, have a part of their own; the lists have all of them."""
MOMENTS_LISTED = 5_000
"""The timeline lists so many moments, as nobody can zoom in to see others."""


def export(path: str, options: StorageOptions | None = None) -> str:
    """Return a document with all pages as they are now. It has no rows: their contents may be secret.

    Raises `LogError` if the cluster cannot be read.
    """
    log = opening.own_log(path, options)
    log.open(create=False)
    view = Watch(log, path).look()
    found = dict(_pages(view, Past(log, requests_at_first=float("inf"))))
    parts = "\n".join(
        f'<section id="{escape(address)}">{without_server(html, found)}</section>' for address, html in found.items()
    )
    left = [
        f"Only the first {PARTS_MAX} of {number(len(some))} {what} have a part of their own."
        for what, some in (("topics", view.topics), ("groups", view.groups))
        if len(some) > PARTS_MAX
    ]
    said = " ".join([f"As it was at {time_of(view.at_ms)}.", *left])
    return pages.document(f"{path} at {time_of(view.at_ms)}", f'<p class="legend">{said}</p>\n{parts}')


def _pages(view: ClusterView, past: Past) -> Iterator[tuple[str, str]]:
    """Yield the address and the HTML of each page."""
    yield "/", rendered("cluster", view, content.cluster(view, {}))
    yield "/topics", rendered("topics", view, content.topics(view, {}))
    yield "/groups", rendered("groups", view, content.groups(view, {}))
    yield "/queries", rendered("queries", view, content.queries(past, view, {}))
    yield "/timeline", rendered("timeline", view, content.timeline(past, view, {}, MOMENTS_LISTED))
    for name in sorted(view.topics)[:PARTS_MAX]:
        yield f"/topics/{pages.segment_of(name)}", rendered("topic", view, content.topic(view, {"topic": name}))
    for name in sorted(view.groups)[:PARTS_MAX]:
        yield f"/groups/{pages.segment_of(name)}", rendered("group", view, content.group(view, {"group": name}))


def rendered(page: str, view: ClusterView, context: dict[str, Any]) -> str:
    """Return the HTML of a page that changes nothing, and offers nothing that only a server can do."""
    return pages.render(page, offline=True, view=view, settings={"allow_changes": False}, secret="", **context)


def without_server(html: str, parts: Collection[str] = ()) -> str:
    """Return the HTML of a page without forms and ids. Links to `parts`, which are addresses, lead to their sections.

    >>> without_server('<a href="/topics/t">t</a> <a href="/topics/t/rows">rows</a><form><input></form>', {"/topics/t"})
    '<a href="#/topics/t">t</a> rows'
    """
    page = _Page(parts)
    page.feed(html)
    page.close()
    return "".join(page.kept)


class _Page(HTMLParser):
    """Keeps the tags and texts of a page that need no server."""

    def __init__(self, parts: Collection[str]) -> None:
        super().__init__(convert_charrefs=False)
        self.kept: list[str] = []
        self._parts = parts
        self._links: list[bool] = []
        """Whether each open link is kept."""
        self._forms = 0

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._forms += tag == "form"
        given = dict(attrs)
        if tag == "a":
            address = given.get("href") or ""
            self._links.append(address in self._parts)
            if self._links[-1]:
                self._keep(f'<a href="#{escape(address)}">')
        elif "id" in given:
            texts = "".join(f' {name}="{escape(value or "")}"' for name, value in attrs if name != "id")
            self._keep(f"<{tag}{texts}>")
        else:
            self._keep(self.get_starttag_text() or "")

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._keep(self.get_starttag_text() or "")

    def handle_endtag(self, tag: str) -> None:
        if tag != "a" or (self._links and self._links.pop()):
            self._keep(f"</{tag}>")
        self._forms -= tag == "form"

    def handle_data(self, data: str) -> None:
        self._keep(data)

    def handle_entityref(self, name: str) -> None:
        self._keep(f"&{name};")

    def handle_charref(self, name: str) -> None:
        self._keep(f"&#{name};")

    def _keep(self, text: str) -> None:
        if not self._forms:
            self.kept.append(text)
