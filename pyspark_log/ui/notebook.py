"""What notebooks show of a cluster, a topic, a group or a consumer: the pages of the server, without a server.

The HTML has a style of its own, which holds within it only, and which no style of the notebook changes. Light and dark
are the notebook's where it says which it is (Jupyter, Visual Studio Code, Colab), else the browser's.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

from pyspark_log import opening
from pyspark_log.browse.past import Past
from pyspark_log.browse.view import Watch
from pyspark_log.documents import groups
from pyspark_log.documents.text import number, size
from pyspark_log.options.given import DescribeOptions, gather
from pyspark_log.options.option import Kind
from pyspark_log.ui import content, pages
from pyspark_log.ui.content import PARTITIONS_SHOWN
from pyspark_log.ui.export import rendered

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark_log.browse.view import ClusterView, GroupView, TopicView

_BOX = ":is(#pyspark-log, .pyspark-log)"
"""With an id it wins over the selectors of a notebook, though no element has this id."""
_LIGHT = ('[data-jp-theme-light="true"] &', ".vscode-light &", "[theme=light] &")
_DARK = ('[data-jp-theme-light="false"] &', ".vscode-dark &", "[theme=dark] &")


class Description:
    """What a cluster, a topic or a group was when `describe` was called."""

    def __init__(self, html: str, text: str) -> None:
        self._html = html
        self._text = text

    def __repr__(self) -> str:
        return self._text

    def _repr_html_(self) -> str:
        return _boxed(self._html)


def describe(
    path: str, topic: str | None = None, group: str | None = None, *, options: Mapping[str, object] | None = None
) -> Description:
    """Return what is known of a topic, a group or both, else of the cluster: a page in notebooks, elsewhere text.

    Needs pip install jinja2. `options` may have `storage_options`. Reads no rows and writes nothing. Raises
    `UnknownTopic`, `UnknownGroup`, and `LogError` if the cluster cannot be read.
    """
    parsed = DescribeOptions(gather(options or {}, Kind.DESCRIBE))
    log = opening.own_log(path, parsed.storage_options)
    log.open(create=False)
    if topic is not None:
        log.topic(topic)
    if group is not None:
        log.group(group)
    view = Watch(log, path).look()
    shown: list[tuple[str, dict[str, Any]]] = []
    lines = []
    if topic is not None:
        shown.append(("topic", content.topic(view, {"topic": topic})))
        lines.append(_topic_line(view.topics[topic]))
    if group is not None:
        shown.append(("group", content.group(Past(log).read(view, group=group), {"group": group})))
        lines.append(_group_line(view.groups[group]))
    if not shown:
        kinds = {"nodes": content.nodes, "topics": content.topics, "groups": content.groups}
        shown = [(page, content_of(view, {})) for page, content_of in kinds.items()]
        lines = _cluster_lines(view)
    html = "".join(rendered(page, view, context) for page, context in shown)
    return Description(html, "\n".join(lines))


def consumer(**context: Any) -> str:
    """Return the HTML of where a consumer is; `context` is that of the template of a consumer."""
    return _boxed(pages.render("consumer", offline=True, most=PARTITIONS_SHOWN, **context))


def _boxed(html: str) -> str:
    return f'<div class="pyspark-log"><style>{_style()}</style>{html}</div>'


def _cluster_lines(view: ClusterView) -> list[str]:
    nodes = ", ".join(f"{each['node']} ({each['state']})" for each in view.nodes)
    silent = ", ".join(each["node"] for each in view.journals if each["missing"] is not None)
    return [
        f"cluster {view.address}, nodes: {nodes}" + (f", do not vote in the journals: {silent}" if silent else ""),
        *(_topic_line(each) for each in view.topics.values()),
        *(_group_line(each) for each in view.groups.values()),
    ]


def _topic_line(view: TopicView) -> str:
    if view.topic is None:
        return f"topic {view.name}: {view.problem}"
    troubles = [f"{number(count)} {kind.value}" for kind, count in view.figures.troubles.items()]
    facts = [
        f"partitions: {number(len(view.topic.partitions))}",
        f"rows: {number(view.figures.rows)}",
        size(view.figures.bytes),
        *(troubles if view.is_troubled else ["healthy"]),
    ]
    return f"topic {view.name}, {', '.join(facts)}"


def _group_line(view: GroupView) -> str:
    if view.group is None:
        return f"group {view.group_id}: {view.problem}"
    found = groups.summary(view.group)
    return f"group {found['group']}, {found['state']}, members: {found['members']}, lag: {number(view.lag)} rows"


@functools.cache
def _style() -> str:
    """Return the style of the pages within the box; what a notebook says about elements is taken back before."""
    css = pages.static("style.css").decode()
    chosen = [
        f"{theme} {{ color-scheme: {name}; }}"
        for name, themes in (("light", _LIGHT), ("dark", _DARK))
        for theme in themes
    ]
    box = "background: var(--page); color: var(--ink); font: 14px/1.5 system-ui, sans-serif; padding: .2rem 1rem;"
    own = css.replace(":root", "&")
    inside = [box, "& *:not(svg, svg *, style) { all: revert; }", "& table { color: inherit; }", own, *chosen]
    return f"{_BOX} {{ " + "\n".join(inside) + " }"
