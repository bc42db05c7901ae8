"""Renders the pages: views and what else they show become HTML. All text from the log is escaped.

A page is a template `<name>.html`, which is what moves; `base.html` is what stands around it. The pages that a browser
opens, what the server sends when something has changed, exported files and notebooks all have the same templates.
"""

from __future__ import annotations

import functools
import hashlib
import importlib.resources
import re
import secrets
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

    from pyspark_log.browse.view import ClusterView
    from pyspark_log.ui.screens import Screen

PAGES = {
    "overview": ("/", "Overview"),
    "topics": ("/topics", "Topics"),
    "groups": ("/groups", "Groups"),
    "queries": ("/queries", "Queries"),
    "history": ("/history", "History"),
    "nodes": ("/nodes", "Nodes"),
}
"""The pages of the navigation: address and title, by the names of their templates."""
_PARENTS = {
    "topic": "topics",
    "rows": "topics",
    "row": "topics",
    "group": "groups",
    "reset": "groups",
    "entry": "history",
}
_TURNS = re.compile("[\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]")
"""Characters that turn the text around them from left to right, or the other way."""


def render(page: str, *, offline: bool = False, sections: Collection[str] = (), **context: Any) -> str:
    """Return the HTML of a template, without what stands around it.

    `offline`: nothing that only a server can do, and links only to `sections`, which are addresses of pages.
    """
    template = _environment().get_template(f"{page}.html")
    return template.render(page=page, offline=offline, sections=sections, **context)


def document_of(page: str, screen: Screen, view: ClusterView, *, root: str = "", moves: bool = True) -> str:
    """Return a whole document for a browser. The content of one that moves is replaced as it changes."""
    here = _PARENTS.get(page, page)
    status = status_of(view, screen)
    shown = {"title": screen.title, "screen": screen.name, "moves": moves, "here": here, "status": status}
    template = _environment().get_template("base.html")
    around = template.render(inside=_INSIDE, offline=False, pages=PAGES, version=version(), view=view, **shown)
    return below(root, around).replace(_INSIDE, screen.html, 1)


_INSIDE = secrets.token_hex(16)
"""Where the content is to be in what is around it; no text of a page has it."""


def below(root: str, html: str) -> str:
    """Return HTML whose addresses of pages begin with `root`, the path below which a proxy serves them."""
    # What comes from the log has no quotes, so these are the page's own addresses.
    return re.sub('(href|action|src|data-zoom)="/', rf'\1="{root}/', html) if root else html


def status_of(view: ClusterView, screen: Screen) -> dict[str, Any]:
    """Return how new what a screen shows is, for the line that each page has."""
    as_of = screen.as_of or view.oldest_ms
    return {"as_of": as_of, "words": view.status, "live": view.status == "live"}


def document(title: str, inside: str) -> str:
    """Return a whole document that needs no server and no script: `inside` with the style, and links to its parts."""
    links = {name: (f"#{address}", text) for name, (address, text) in PAGES.items()}
    style = static("style.css").decode()
    base = _environment().get_template("base.html")
    return base.render(here="", title=title, inside=inside, moves=False, offline=True, pages=links, style=style)


def static(name: str) -> bytes:
    """Return a file that is served as it is: a style sheet or a script. Raises `KeyError` for any other name."""
    return _statics()[name]


@functools.cache
def version() -> str:
    """Return what the addresses of these files have in them: it changes with them, so browsers may keep them."""
    return hashlib.blake2b(b"".join(found for _, found in sorted(_statics().items())), digest_size=6).hexdigest()


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
        finalize=visible,
    )
    environment.globals["link"] = link
    filters: dict[str, Callable[..., Any]] = {
        "time": time_of,
        "ago": ago,
        "segment": segment_of,
        "of_unit": of_unit,
        "setting": setting,
    }
    environment.filters.update({each.__name__: each for each in (number, size, rate, duration, query)} | filters)
    return environment


def visible(value: object) -> object:
    """Return a text with what would turn its neighbours round written out, as U+202E."""
    if not isinstance(value, str) or isinstance(value, Markup):
        return value
    return _TURNS.sub(lambda found: f"\\u{ord(found[0]):04x}", value)


@jinja2.pass_context
def link(context: jinja2.runtime.Context, address: str, text: object) -> Markup:
    """Return a link to a page. Offline it leads to one of the document's `sections`, or is its text."""
    text = visible(text)
    if context["offline"]:
        if address not in context["sections"]:
            return Markup("{}").format(text)
        address = f"#{address}"
    return Markup('<a href="{}">{}</a>').format(address, text)


def ago(ms: int) -> Markup:
    """Return a time (ms since 1970) for the script to say how long ago it was; on hover, and without it, in UTC."""
    shown = time_of(ms)
    return Markup('<time datetime="{0}" data-ms="{1}" title="{0}">{0}</time>').format(shown, ms)


def of_unit(value: float, unit: str) -> str:
    """Return a number of a chart for people."""
    if unit == "bytes":
        return f"{size(value)}/s"
    return rate(value) if unit == "rate" else f"{value:.1f} s" if unit == "seconds" else number(round(value))


def setting(value: str, name: str) -> str:
    """Return a setting's value for people: a time or a size, by the setting's name.

    >>> setting("604800000", "retention.ms"), setting("1073741824", "segment.bytes"), setting("-1", "retention.bytes")
    ('7 d', '1.1 GB', '-1')
    """
    if value == str(2**63 - 1):
        return "unlimited"
    if not value.isdigit():
        return value
    of_time, of_size = name.endswith(".ms"), name.endswith(".bytes")
    return duration(int(value)) if of_time and value != "0" else size(int(value)) if of_size else value


def segment_of(text: str) -> str:
    """Return a text as one segment of an address's path."""
    return quote(text, safe="")


def query(values: Mapping[str, object]) -> str:
    """Return the query of an address; empty values are left out."""
    return urlencode({name: str(value) for name, value in values.items() if value not in {None, ""}})
