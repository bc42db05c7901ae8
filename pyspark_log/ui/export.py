"""The pages as one document that needs no server: a file for a ticket or a post-mortem, and what notebooks show.

The templates are those of the server, without what only a server could do: forms, and links to what the document does
not have.
"""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from pyspark_log import opening
from pyspark_log.browse.past import Past
from pyspark_log.browse.view import Watch
from pyspark_log.documents.text import number, time_of
from pyspark_log.ui import content, pages

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from pyspark_log.browse.past import Known
    from pyspark_log.browse.view import ClusterView
    from pyspark_log_storage.stores.storage_options import StorageOptions

PARTS_MAX = 200
"""So many topics, and so many groups, have a part of their own; the lists have all of them."""
MOMENTS_LISTED = 5_000
"""The history lists so many moments, as nobody can zoom in to see others."""


def export(path: str, options: StorageOptions | None = None) -> str:
    """Return a document with all pages as they are now. It has no rows: their contents may be secret.

    Raises `LogError` if the cluster cannot be read.
    """
    log = opening.own_log(path, options)
    log.open(create=False)
    view = Watch(log, path).look()
    past = Past(log)
    past.read(view)
    found = {address: (page, context) for address, page, context in _pages(view, past.known)}
    parts = "\n".join(
        _part(address, page, rendered(page, view, context, found)) for address, (page, context) in found.items()
    )
    left = [
        f"Only the first {PARTS_MAX} of {number(len(some))} {what} have a part of their own."
        for what, some in (("topics", view.topics), ("groups", view.groups))
        if len(some) > PARTS_MAX
    ]
    said = " ".join([f"As it was at {time_of(view.at_ms)}.", *left])
    return pages.document(f"{path} at {time_of(view.at_ms)}", f'<p class="legend">{said}</p>\n{parts}')


def _part(address: str, page: str, html: str) -> str:
    """Return a part of the document. Topics and groups are folded."""
    if page not in {"topic", "group"}:
        return f'<section id="{escape(address)}">{html}</section>'
    name = escape(str(pages.visible(unquote(address.rpartition("/")[2]))))
    summary = f"<summary>{page} {name}</summary>"
    return f'<section id="{escape(address)}"><details class="panel">{summary}{html}</details></section>'


def _pages(view: ClusterView, past: Known) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Yield the address of each page, its template, and what it shows."""
    yield "/", "overview", content.overview(view, {}, past)
    yield "/topics", "topics", content.topics(view, {}, past)
    yield "/groups", "groups", content.groups(view, {}, past)
    yield "/queries", "queries", content.queries(view, {}, past)
    yield "/history", "history", content.history(view, {}, past, MOMENTS_LISTED)
    yield "/nodes", "nodes", content.nodes(view, {}, past)
    for name in sorted(view.topics)[:PARTS_MAX]:
        yield f"/topics/{pages.segment_of(name)}", "topic", content.topic(view, {"topic": name}, past)
    for name in sorted(view.groups)[:PARTS_MAX]:
        yield f"/groups/{pages.segment_of(name)}", "group", content.group(view, {"group": name}, past)


def rendered(page: str, view: ClusterView, context: dict[str, Any], sections: Collection[str] = ()) -> str:
    """Return the HTML of a page that offers nothing that only a server can do. Links lead to `sections`."""
    given = {"view": view, "settings": {"allow_changes": False, "shows_rows": False}, "secret": ""}
    return pages.render(page, offline=True, sections=sections, **given, **context)
