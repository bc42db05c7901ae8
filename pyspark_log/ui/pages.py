"""Renders the pages: views and what else they show become HTML. All text from the log is escaped.

A page is a template `<name>.html`, which is what moves; `base.html` is what stands around it. The pages that a browser
opens, what the server sends when something has changed, exported files and notebooks all have the same templates.
"""

from __future__ import annotations

import functools
import importlib.resources
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlencode

from pyspark_log.documents.text import duration, number, rate, size, time_of
from pyspark_log_storage.errors import InvalidInput

try:
    import jinja2
    from markupsafe import Markup
except ImportError as missing:
    raise InvalidInput(f"the page needs Jinja2, and it cannot be imported ({missing}); pip install jinja2") from None

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

PAGES = {
    "cluster": ("/", "Cluster"),
    "topics": ("/topics", "Topics"),
    "groups": ("/groups", "Groups"),
    "queries": ("/queries", "Queries"),
    "timeline": ("/timeline", "Timeline"),
}
"""The pages of the navigation: address and title, by the names of their templates."""


def render(page: str, *, offline: bool = False, sections: Collection[str] = (), **context: Any) -> str:
    """Return the HTML of a template, without what stands around it.

    `offline`: nothing that only a server can do, and links only to `sections`, which are addresses of pages.
    """
    template = _environment().get_template(f"{page}.html")
    return template.render(page=page, offline=offline, sections=sections, **context)


def whole(page: str, *, live: str = "", **context: Any) -> str:
    """Return a whole document for a browser: a template within `base.html`.

    `live` is the address whose events replace the content as it changes, none for content that stays.
    """
    inside = render(page, **context)
    return (
        _environment()
        .get_template("base.html")
        .render(page=page, inside=inside, live=live, offline=False, pages=PAGES, **context)
    )


def document(title: str, inside: str) -> str:
    """Return a whole document that needs no server and no script: `inside` with the style, and links to its parts."""
    links = {name: (f"#{address}", text) for name, (address, text) in PAGES.items()}
    style = static("style.css").decode()
    base = _environment().get_template("base.html")
    return base.render(page="", title=title, inside=inside, live="", offline=True, pages=links, style=style)


def static(name: str) -> bytes:
    """Return a file that is served as it is: a style sheet or a script. Raises `KeyError` for any other name."""
    return _statics()[name]


@functools.cache
def _statics() -> Mapping[str, bytes]:
    folder = importlib.resources.files("pyspark_log.ui") / "static"
    return {each.name: each.read_bytes() for each in folder.iterdir() if each.is_file()}


@functools.cache
def _environment() -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("pyspark_log.ui"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.globals["link"] = link
    filters: dict[str, Callable[..., str]] = {"time": time_of, "segment": segment_of}
    environment.filters.update({each.__name__: each for each in (number, size, rate, duration, query)} | filters)
    return environment


@jinja2.pass_context
def link(context: jinja2.runtime.Context, address: str, text: object) -> Markup:
    """Return a link to a page. Offline it leads to one of the document's `sections`, or is its text."""
    if context["offline"]:
        if address not in context["sections"]:
            return Markup("{}").format(text)
        address = f"#{address}"
    return Markup('<a href="{}">{}</a>').format(address, text)


def segment_of(text: str) -> str:
    """Return a text as one segment of an address's path."""
    return quote(text, safe="")


def query(values: Mapping[str, object]) -> str:
    """Return the query of an address; empty values are left out."""
    return urlencode({name: str(value) for name, value in values.items() if value not in {None, ""}})
