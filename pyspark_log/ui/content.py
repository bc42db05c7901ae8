"""What each page shows: pure functions from a view and an address's parameters to the values of a template.

A parameter that makes no sense counts as its default: an address that somebody has shortened or mistyped still opens.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from pyspark_log.documents import groups as group_documents
from pyspark_log.documents import topics as topic_documents
from pyspark_log.documents.queries import queries as query_documents
from pyspark_log.documents.text import number, size, time_ms_of, time_of
from pyspark_log.reading.groups import LATEST, check_reset, lags, reset_to, within_log
from pyspark_log.reading.groups import reset as reset_offsets
from pyspark_log.ui import rows as stored_rows
from pyspark_log.ui.past import MOMENTS_LISTED, Past, drawn, span_of
from pyspark_log_coordinator.audit.timeline import Lane, Scope
from pyspark_log_storage.columns import schema
from pyspark_log_storage.errors import InvalidInput, LogError

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from pyspark_log.reading.groups import PartitionLag
    from pyspark_log.ui.view import ClusterView, TopicView
    from pyspark_log_coordinator.log.log import Log
    from pyspark_log_coordinator.model.partition import ChunkRef, NodeId, Partition, SegmentRef

Content = Callable[["ClusterView", "Mapping[str, str]"], dict[str, Any]]
"""`content(view, parameters)`; the parameters are those of the address's path and query."""
PARTITIONS_SHOWN = 200
"""Partitions on one page of a topic."""
STRIP_WIDTH = 400
PIECES_MAX = 120
"""Pieces of a strip; neighbours of one kind are joined until there are no more."""
BATCHES_LISTED = 200
_US_PER_MS = 1000


def cluster(view: ClusterView, parameters: Mapping[str, str]) -> dict[str, Any]:
    """Return what the page of the cluster shows."""
    del view, parameters
    return {"title": "Cluster"}


def topics(view: ClusterView, parameters: Mapping[str, str]) -> dict[str, Any]:
    """Return the topics with `q` in their names, in the order `sort`."""
    wanted, order = parameters.get("q", ""), parameters.get("sort", "name")
    found = [each for each in view.topics.values() if wanted.lower() in each.name.lower()]
    lag: dict[str, int] = {}
    for group in view.groups.values():
        of_group: dict[str, int] = {}
        for each in group.lags:
            of_group[each.topic] = of_group.get(each.topic, 0) + each.lag
        for name, rows in of_group.items():
            lag[name] = max(rows, lag.get(name, 0))
    keys: dict[str, Callable[[TopicView], Any]] = {
        "name": lambda each: each.name,
        "health": lambda each: (not each.problem, -sum(each.figures.troubles.values()), each.name),
        "rows": lambda each: -each.figures.rows,
        "bytes": lambda each: -each.figures.bytes,
        "rate": lambda each: -(each.rate or 0),
        "lag": lambda each: -lag.get(each.name, 0),
    }
    order = order if order in keys else "name"
    return {"title": "Topics", "topics": sorted(found, key=keys[order]), "lag": lag, "order": order, "wanted": wanted}


def topic(view: ClusterView, parameters: Mapping[str, str]) -> dict[str, Any]:
    """Return a topic, a `page` of its partitions, and its settings."""
    name = parameters["topic"]
    found = view.topics.get(name)
    context: dict[str, Any] = {"title": name, "name": name, "topic": found}
    if found is None or found.topic is None:
        return context
    state = found.topic
    columns = topic_documents.columns(schema.decode_all(state.schemas[-1:], f"topic {name!r}"))
    return context | {
        "shown": _shown(state.partitions, view.broken, whole_number(parameters.get("page", ""), 0)),
        "ddl": columns.get("schema", ""),
        "groups": [each for each in view.groups.values() if any(lag.topic == name for lag in each.lags)],
        "settings_of_topic": topic_documents.settings(state.config),
    }


def groups(view: ClusterView, parameters: Mapping[str, str]) -> dict[str, Any]:
    """Return the groups with `q` in their names."""
    wanted = parameters.get("q", "")
    found = [each for each in view.groups.values() if wanted.lower() in each.group_id.lower()]
    return {"title": "Groups", "groups": found, "wanted": wanted}


def group(view: ClusterView, parameters: Mapping[str, str]) -> dict[str, Any]:
    """Return a group, how old its oldest unread rows are at least, and its lag over time."""
    name = parameters["group"]
    found = view.groups.get(name)
    context: dict[str, Any] = {"title": name, "name": name, "group": found}
    if found is None or found.group is None:
        return context
    document = group_documents.group(found.group, found.address, found.lags, lambda each: _unread_ms(view, each))
    behind = [each["behind_ms"] for each in document["partitions"] if each["behind_ms"] is not None]
    return context | {
        "document": document,
        "oldest": max(behind, default=None),
        "chart": _chart(found.history),
        "topics": sorted({each.topic for each in found.lags} or view.topics),
    }


def _unread_ms(view: ClusterView, lag: PartitionLag) -> int | None:
    """Return how old the oldest unread row is at least, None if there is none. Reads no row: its chunk has times."""
    topic = view.topics[lag.topic].topic if lag.topic in view.topics else None
    if not lag.lag or topic is None:
        return None
    if lag.partition >= len(topic.partitions):  # the topic was created again since the group could be read
        return None
    pieces = topic.partitions[lag.partition].pieces_between(lag.unread, lag.unread + 1)
    return max(0, view.at_ms - pieces[0].max_timestamp // _US_PER_MS) if pieces else None


class Chart(NamedTuple):
    """A line over time: its points for an SVG of `STRIP_WIDTH` by 80, and what it reaches from."""

    points: str
    highest: int
    since: int
    until: int


def _chart(history: Sequence[tuple[int, int]]) -> Chart | None:
    if len(history) < 2:  # noqa: PLR2004 -- a line has two points
        return None
    since, until = history[0][0], history[-1][0]
    highest = max(1, *(rows for _, rows in history))
    points = " ".join(
        f"{STRIP_WIDTH * (ms - since) / max(1, until - since):.1f},{78 - 76 * rows / highest:.1f}"
        for ms, rows in history
    )
    return Chart(points, highest, since, until)


def queries(past: Past, view: ClusterView, parameters: Mapping[str, str]) -> dict[str, Any]:
    """Return the queries that write topics, their newest batches, and the groups that only store offsets."""
    del parameters
    topics = {name: each.topic for name, each in view.topics.items() if each.topic is not None}
    context: dict[str, Any] = {
        "title": "Queries",
        "writers": [one for name, each in topics.items() for one in query_documents(name, each)],
        "readers": [each for each in view.groups.values() if each.group and not each.group.protocol_type],
        "problem": "",
        "batches": [],
        "newest": {},
        "unread": 0,
    }
    try:
        journals = past.journals(view)
    except LogError as error:
        return context | {"problem": error.message}
    batches = [each for journal in journals.values() for each in journal.moments if each.producer]
    batches.sort(key=lambda each: -each.time_ms)
    newest: dict[tuple[str, str], int] = {}
    for each in batches:
        newest.setdefault((each.name, each.producer), each.time_ms)
    return context | {
        "batches": batches[:BATCHES_LISTED],
        "newest": newest,
        "total": len(batches),
        "unread": _unread(view, journals),
    }


def reset(open_: Callable[[], Log], parameters: Mapping[str, str], mask: Collection[str]) -> dict[str, Any]:
    """Return what a reset of a group's offsets changes. With `offsets`, which are those that were shown, do it."""
    del mask
    name, topic_name, to = parameters["group"], parameters.get("topic", ""), parameters.get("to", "")
    context: dict[str, Any] = {
        "title": f"Reset {name}",
        "name": name,
        "topic": topic_name,
        "problem": "",
        "done": False,
    }
    try:
        log = open_()
        committed = {(each.topic, each.partition): each.committed for each in lags(log, log.group(name).state)}
        if shown := parameters.get("offsets", ""):
            offsets = {(topic_name, number): offset for number, offset in stored_rows.cursor_of(shown).items()}
            reset_offsets(log, name, within_log(log, offsets))
        else:
            offsets = _new_offsets(log, topic_name, to, parameters.get("value", ""), committed)
            check_reset(log, name, offsets)
    except LogError as error:
        return context | {"problem": error.message}
    plan = [(number, committed.get((topic_name, number)), offset) for (_, number), offset in offsets.items()]
    cursor = stored_rows.cursor({number: offset for (_, number), offset in offsets.items()})
    return context | {"plan": plan, "cursor": cursor, "done": bool(shown)}


def _new_offsets(
    log: Log, name: str, to: str, value: str, committed: Mapping[tuple[str, int], int]
) -> dict[tuple[str, int], int]:
    """Return the offsets that a form asks for, of each partition of the topic. Raises `InvalidInput`."""
    partitions = [(name, number) for number in range(len(log.topic(name).partitions))]
    if to in {"earliest", "latest"}:
        return reset_to(log, partitions, committed, offset=LATEST if to == "latest" else 0)
    if to == "time":
        return reset_to(log, partitions, committed, ms=time_ms_of(value))
    sign, digits = (-1, value[1:]) if to == "shift" and value.startswith("-") else (1, value)
    if to not in {"offset", "shift"} or not (digits.isascii() and digits.isdigit() and len(digits) < 19):  # noqa: PLR2004
        raise InvalidInput(
            f"{value[:40]!r} is not a number of rows; choose where the group is to continue, and a number"
        )
    if to == "offset":
        return reset_to(log, partitions, committed, offset=int(digits))
    return reset_to(
        log, [key for key in partitions if key in committed] or partitions, committed, shift=sign * int(digits)
    )


def rows(open_: Callable[[], Log], parameters: Mapping[str, str], mask: Collection[str]) -> dict[str, Any]:
    """Return a page of rows, or why there is none. `open_` returns the log of this thread."""
    name = parameters["topic"]
    fields = ("partition", "offset", "time", "order", "key", "key_has", "value_has", "header", "field")
    given = {field: parameters.get(field, "") for field in fields}
    context = {"title": f"{name}: rows", "name": name, "given": given, "found": None, "problem": "", "mask": mask}
    try:
        wanted = stored_rows.wanted_of(parameters, mask)
        found = stored_rows.read(open_().topic(name), wanted, mask)
    except LogError as error:
        return context | {"problem": error.message}
    older = None if found.at is None else stored_rows.cursor(found.at)
    return context | {"found": found, "next": older, "short": stored_rows.SHORT, "most": stored_rows.DOWNLOAD_ROWS}


def download(open_: Callable[[], Log], parameters: Mapping[str, Any], mask: Collection[str]) -> dict[str, Any]:
    """Return the rows of a page as a file."""
    try:
        wanted = msgspec.structs.replace(stored_rows.wanted_of(parameters, mask), limit=stored_rows.DOWNLOAD_ROWS)
        return {"file": stored_rows.download(open_().topic(parameters["topic"]), wanted, parameters["form"], mask)}
    except LogError as error:
        return {"problem": error.message}


def row(open_: Callable[[], Log], parameters: Mapping[str, Any], mask: Collection[str]) -> dict[str, Any]:
    """Return one row in full."""
    name, partition, offset = parameters["topic"], parameters["partition"], parameters["offset"]
    context = {"title": f"{name} {partition} {offset}", "name": name, "row": None, "problem": ""}
    try:
        found = stored_rows.read_one(open_().topic(name), partition, offset, mask)
    except LogError as error:
        return context | {"problem": error.message}
    return context | {"row": found, "pretty": {column: _pretty(text) for column, text in found.columns.items()}}


def _pretty(text: str | None) -> str | None:
    """Return JSON with line breaks and indents, other text as it is."""
    if text is None or not text.startswith(("{", "[")):
        return text
    try:
        return msgspec.json.format(text.encode(), indent=2).decode()
    except (msgspec.DecodeError, RecursionError, ValueError):
        return text


def timeline(
    past: Past, view: ClusterView, parameters: Mapping[str, str], listed: int = MOMENTS_LISTED
) -> dict[str, Any]:
    """Return what happened in a span of time, in the lanes that are wanted: all but batches unless some are named.

    The newest `listed` moments are listed.
    """
    names = ("topic", "group", "from", "to")
    given = {name: parameters.get(name, "") for name in names}
    lanes = [each for each in Lane if each.name.lower() in parameters.get("lanes", "").split()]
    lanes = lanes or [each for each in Lane if each is not Lane.BATCHES]
    given["lanes"] = " ".join(each.name.lower() for each in lanes) if parameters.get("lanes") else ""
    context: dict[str, Any] = {"title": "Timeline", "given": given, "problem": "", "all_lanes": list(Lane)}
    try:
        journals = past.journals(view, given["topic"], given["group"])
        moments = [each for journal in journals.values() for each in journal.moments]
        span = span_of(parameters, moments, view.at_ms)
    except LogError as error:
        return context | {"problem": error.message}
    trimmed = {key: each for key, each in journals.items() if each.begin > 1}
    return context | {
        "drawn": drawn(moments, span, lanes, time_of, listed),
        "trimmed": trimmed,
        "journals": journals,
        "unread": 0 if given["topic"] or given["group"] else _unread(view, journals),
    }


def _unread(view: ClusterView, journals: Collection[Any]) -> int:
    """Return how many journals of topics and groups, and the cluster's, are not known yet."""
    return max(0, 1 + len(view.topics) + len(view.groups) - len(journals))


def entry(past: Past, view: ClusterView, parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Return one entry of a journal: what it did, and its events."""
    del view
    scope, name, number_ = Scope(parameters["scope"]), parameters.get("name", ""), parameters["number"]
    context = {"title": f"Entry {number_} of {f'{scope.value} {name}' if name else 'the cluster'}", "problem": ""}
    try:
        found = past.entry(scope, name, number_)
    except LogError as error:
        return context | {"problem": error.message}
    if found is None:
        return context | {"problem": "This entry was trimmed, or does not exist."}
    return context | {"entry": found, "events": msgspec.json.format(msgspec.json.encode(found.events)).decode()}


def whole_number(text: str, default: int) -> int:
    """Return the whole number of a parameter, at least 0, or the default if it is none."""
    return int(text) if text.isascii() and text.isdigit() and len(text) < 20 else default  # noqa: PLR2004 -- of int64


class Piece(NamedTuple):
    """A part of a strip: rows of one kind of file, by the timestamps of their rows."""

    kind: str
    x: float
    width: float
    words: str


class Shown(NamedTuple):
    """One page of a topic's partitions. `since` and `until` (ms) are where the strips begin and end."""

    partitions: list[dict[str, Any]]
    """Their documents, each with its files as a `strip` of time, and in words (`summary`)."""
    page: int
    pages: int
    size: int
    total: int
    since: int | None
    until: int | None


def _shown(partitions: Sequence[Partition], broken: Collection[NodeId], page: int) -> Shown:
    pages = max(1, -(-len(partitions) // PARTITIONS_SHOWN))
    page = min(page, pages - 1)
    first = page * PARTITIONS_SHOWN
    here = list(enumerate(partitions))[first : first + PARTITIONS_SHOWN]
    firsts = [next(partition.pieces_from(0), None) for _, partition in here]
    since = min((each.min_timestamp for each in firsts if each is not None), default=None)
    until = None if since is None else max(partition.timestamp_reached for _, partition in here)
    rows = []
    for number_, each in here:
        strip, summary = _strip(each, since, until)
        rows.append(topic_documents.partition(number_, each, broken) | {"strip": strip, "summary": summary})
    return Shown(
        rows,
        page,
        pages,
        PARTITIONS_SHOWN,
        len(partitions),
        None if since is None else since // _US_PER_MS,
        None if until is None else until // _US_PER_MS,
    )


def _strip(partition: Partition, since: int | None, until: int | None) -> tuple[list[Piece], str]:
    """Return the files of a partition by time (microseconds), and what they are in words."""
    kinds: dict[str, list[SegmentRef | ChunkRef]] = {"parquet": [], "log": [], "chunk": []}
    for segment in partition.segments:
        kinds["parquet" if segment.is_parquet else "log"].append(segment)
    kinds["chunk"] += partition.chunks
    names = {"parquet": "Parquet segments", "log": ".log segments", "chunk": "unrolled chunks"}
    summary = ", ".join(f"{number(len(some))} {names[kind]}" for kind, some in kinds.items() if some)
    if since is None or until is None:
        return [], summary
    span = max(1, until - since)
    strip: list[Piece] = []
    for kind, some in kinds.items():
        step = max(1, -(-len(some) // PIECES_MAX))
        for start in range(0, len(some), step):
            joined = some[start : start + step]
            begin, end = min(each.min_timestamp for each in joined), max(each.max_timestamp for each in joined)
            x = STRIP_WIDTH * (begin - since) / span
            width = max(1.0, STRIP_WIDTH * (end - begin) / span)
            words = (
                f"{names[kind]}: offsets {number(joined[0].base_offset)} to {number(joined[-1].end_offset - 1)}, "
                f"{size(sum(each.length for each in joined))}, {time_of(begin // _US_PER_MS)} to "
                f"{time_of(end // _US_PER_MS)}"
            )
            strip.append(Piece(kind, round(min(x, STRIP_WIDTH - width), 1), round(width, 1), words))
    return strip, summary
