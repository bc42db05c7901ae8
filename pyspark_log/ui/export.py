"""The pages as one document that needs no server: a file for a ticket or a post-mortem, and what notebooks show.

The templates are those of the server, without what only a server could do: forms, and links to what the document does
not have.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyspark_log import opening
from pyspark_log.browse.past import Past
from pyspark_log.browse.view import Watch
from pyspark_log.documents.text import time_of
from pyspark_log.ui import content, pages

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

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
    view = Past(log).read(Watch(log, path).look())
    found = {address: (page, name, context) for address, page, name, context in _pages(view)}
    parts = {
        address: (page, name, rendered(page, view, context, found)) for address, (page, name, context) in found.items()
    }
    inside = pages.render("export", view=view, parts=parts, most=PARTS_MAX)
    return pages.document(f"{path} at {time_of(view.at_ms)}", inside)


def _pages(view: ClusterView) -> Iterator[tuple[str, str, str, dict[str, Any]]]:
    """Yield the address of each page, its template, of which topic or group it is, and what it shows."""
    for page, (address, _) in pages.PAGES.items():
        more = {"most": MOMENTS_LISTED} if page == "history" else {}
        yield address, page, "", getattr(content, page)(view, {}, **more)
    for page, names in (("topic", view.topics), ("group", view.groups)):
        for name in sorted(names)[:PARTS_MAX]:
            address = f"/{page}s/{pages.segment_of(name)}"
            yield address, page, name, getattr(content, page)(view, {page: name})


def rendered(page: str, view: ClusterView, context: dict[str, Any], sections: Collection[str] = ()) -> str:
    """Return the HTML of a page that offers nothing that only a server can do. Links lead to `sections`."""
    given = {"view": view, "settings": {"allow_changes": False, "shows_rows": False}, "secret": ""}
    return pages.render(page, offline=True, sections=sections, **given, **context)
