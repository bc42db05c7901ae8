"""What each page shows: functions from a view and an address's parameters to a template's values.

A parameter that makes no sense counts as its default: an address that somebody has shortened or mistyped still opens.
What does not exist has the `status` 404.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import msgspec

from pyspark_log.browse import rows as stored_rows
from pyspark_log.browse.masks import mask_of
from pyspark_log.documents import groups as group_documents
from pyspark_log.documents import history as past_numbers
from pyspark_log.documents import topics as topic_documents
from pyspark_log.documents.figures import Figures, size_of
from pyspark_log.documents.text import number, time_ms_of
from pyspark_log.documents.verdict import spare
from pyspark_log_coordinator.audit.timeline import Lane, Scope
from pyspark_log_coordinator.log.partition_health import Trouble, troubles
from pyspark_log_storage.columns import schema
from pyspark_log_storage.errors import GroupError, InvalidInput, LogError, UnknownGroup, UnknownTopic

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    from pyspark_log.browse.past import Past
    from pyspark_log.browse.view import ClusterView, GroupView, TopicView
    from pyspark_log.documents.history import Span, Values
    from pyspark_log.reading.groups import PartitionLag
    from pyspark_log_coordinator.log.log import Log
    from pyspark_log_coordinator.model.partition import ChunkRef, NodeId, Partition, SegmentRef

T = TypeVar("T")
Content = Callable[["ClusterView", Mapping[str, str]], dict[str, Any]]
"""`content(view, parameters)`; the parameters are those of the address's path and query."""
PARTITIONS_SHOWN = 50
"""Partitions on one page of a topic or a group."""
MOMENTS_LISTED = 200
RECENT_MS = 3 * 3_600_000
"""The time that the overview shows at most."""
FURTHEST_BEHIND = 5
QUIET = (Lane.BATCHES, Lane.COMMITS)
"""Lanes of which there is so much that they are listed only on request."""
ROUTINE = (*QUIET, Lane.SEGMENTS)
"""Lanes of what is as it should be: the overview has none of it."""
_US_PER_MS = 1000


def overview(view: ClusterView, parameters: Mapping[str, str]) -> dict[str, Any]:
    """Return whether somebody should worry, and what moves."""
    del parameters
    moments = [each for journal in view.past.values() for each in journal.moments]
    first = min((each.time_ms for each in moments), default=view.now_ms)
    within = past_numbers.span(max(first - 1, view.at_ms - RECENT_MS), view.at_ms)
    topics = [(Scope.TOPIC, each) for each in view.topics]
    (in_bytes,) = past_numbers.rates(view.past, topics, within, "bytes")
    events, _ = past_numbers.listed([*moments, *view.noticed], 10, [each for each in Lane if each not in ROUTINE])
    behind = sorted((each for each in view.groups.values() if each.lag), key=lambda each: -each.lag)
    known = [each for each in in_bytes if each is not None]
    growth = sum(known) / len(known) if known else 0.0
    stored = sum(each.figures.bytes for each in view.topics.values()) or 1
    return {
        "title": "Overview",
        "rows": sum(each.figures.rows for each in view.topics.values()),
        "bytes": sum(each.figures.bytes for each in view.topics.values()),
        "lag": sum(each.lag for each in view.groups.values()),
        "charts": _rates(view, within, topics, list(view.groups)),
        "behind": [(each, _catch_up(view, each)) for each in behind[:FURTHEST_BEHIND]],
        "full_in": {each["node"]: _days_left(each, growth * each["has"].bytes / stored) for each in view.nodes},
        "events": events,
        "queries": past_numbers.batches(view.past)[:FURTHEST_BEHIND],
        "unread": _unread(view, view.keys),
        "spare": spare(view.journals) if view.journals else None,
    }


def _days_left(node: Mapping[str, Any], bytes_a_second: float) -> float | None:
    """Return in how many days a disk is full if all goes on like this and nothing is deleted, None if in none."""
    return node["free"] / bytes_a_second / 86_400 if node["free"] is not None and bytes_a_second >= 1 else None


class CatchUp(NamedTuple):
    """How a group's lag changes: rows a second, and in how many ms there will be none; None if that is not known."""

    trend: float | None
    ms: float | None


def _catch_up(view: ClusterView, group: GroupView) -> CatchUp:
    within = past_numbers.span(view.at_ms - 600_000, view.at_ms)
    change = past_numbers.trend(
        past_numbers.lag(view.past, group.group_id, _topics_of(group), group.lag, within), within
    )
    return CatchUp(change, group.lag / -change * 1000 if change is not None and change < 0 and group.lag else None)


def _topics_of(group: GroupView) -> list[str]:
    return sorted({each.topic for each in group.lags} | group.unstarted.keys())


def nodes(view: ClusterView, parameters: Mapping[str, str]) -> dict[str, Any]:
    """Return the nodes."""
    del parameters
    return {"title": "Nodes", "spare": spare(view.journals) if view.journals else None}


def topics(view: ClusterView, parameters: Mapping[str, str]) -> dict[str, Any]:
    """Return the topics with `q` in their names, in the order `sort`, the other way round with `-` before it."""
    wanted = parameters.get("q", "")
    troubled = parameters.get("troubled", "")
    found = [
        each
        for each in view.topics.values()
        if wanted.lower() in each.name.lower() and not (troubled and not each.is_troubled and not each.problem)
    ]
    lag: dict[str, int] = {}
    for group in view.groups.values():
        for name in _topics_of(group):
            lag[name] = max(group.lag_of(name), lag.get(name, 0))
    keys: dict[str, Callable[[TopicView], Any]] = {
        "name": lambda each: each.name,
        "health": lambda each: (not each.problem, -sum(each.figures.troubles.values()), each.name),
        "partitions": lambda each: -len(each.topic.partitions) if each.topic is not None else 0,
        "rows": lambda each: -each.figures.rows,
        "bytes": lambda each: -each.figures.bytes,
        "disk": lambda each: -each.figures.stored,
        "rate": lambda each: -(each.rate or 0),
        "lag": lambda each: -lag.get(each.name, 0),
    }
    return {"title": "Topics", "lag": lag, "wanted": wanted, "troubled": troubled} | _sorted(found, keys, parameters)


def _sorted(
    found: Iterable[T], keys: Mapping[str, Callable[[T], Any]], parameters: Mapping[str, str]
) -> dict[str, Any]:
    """Return what is listed in the `order` that an address asks for, by name if it asks for none."""
    asked = parameters.get("sort", "")
    order = asked if asked.removeprefix("-") in keys else "name"
    key, is_reversed = keys[order.removeprefix("-")], order.startswith("-")
    return {"order": order, "found": sorted(found, key=key, reverse=is_reversed)}


def topic(view: ClusterView, parameters: Mapping[str, str]) -> dict[str, Any]:
    """Return a topic, a `page` of its partitions, and its settings."""
    name = parameters["topic"]
    found = view.topics.get(name)
    context: dict[str, Any] = {"title": name, "name": name, "topic": found}
    if found is None or found.topic is None:
        return context | _missing(view, "topic", name, list(view.topics), found.problem if found else "")
    state = found.topic
    columns = topic_documents.columns(schema.decode_all(state.schemas[-1:], f"topic {name!r}"))
    ill = "" if not parameters.get("troubled") else "1"
    chosen = [
        (number_, each)
        for number_, each in enumerate(state.partitions)
        if not ill or troubles(each, state.config, view.broken) - {Trouble.AT_MIN_ISR}
    ]
    paged = _paged(chosen, parameters.get("page", ""))
    return context | {
        "problem": "",
        "paged": paged,
        **_partitions(paged["here"], view.broken),
        "troubled": ill,
        "ddl": columns.get("schema", ""),
        "groups": [each for each in view.groups.values() if name in _topics_of(each)],
        "settings_of_topic": topic_documents.settings(state.config),
    }


def _missing(view: ClusterView, kind: str, name: str, every: Sequence[str], problem: str) -> dict[str, Any]:
    """Return why there is nothing to show of a topic or group, and which have similar names."""
    if problem:
        return {"problem": problem, "status": 503, "similar": []}
    if not view.at_ms:
        return {"problem": "The cluster is being read.", "status": 503, "similar": []}
    similar = [each for each in every if name.lower() in each.lower() or each.lower() in name.lower()][:5]
    return {"problem": f"There is no {kind} of this name.", "status": 404, "similar": similar}


def groups(view: ClusterView, parameters: Mapping[str, str]) -> dict[str, Any]:
    """Return the groups with `q` in their names, in the order `sort`."""
    wanted = parameters.get("q", "")
    found = [each for each in view.groups.values() if wanted.lower() in each.group_id.lower()]
    keys: dict[str, Callable[[GroupView], Any]] = {
        "name": lambda each: each.group_id,
        "state": lambda each: (each.group.state.value if each.group else "", each.group_id),
        "members": lambda each: -len(each.group.members) if each.group else 0,
        "lag": lambda each: -each.lag,
    }
    return {"title": "Groups", "wanted": wanted, "topics_of": _topics_of} | _sorted(found, keys, parameters)


def group(view: ClusterView, parameters: Mapping[str, str]) -> dict[str, Any]:
    """Return a group, how old its oldest unread rows are at least, and its lag over time."""
    name = parameters["group"]
    found = view.groups.get(name)
    context: dict[str, Any] = {"title": name, "name": name, "group": found}
    if found is None or found.group is None:
        return context | _missing(view, "group", name, list(view.groups), found.problem if found else "")
    document = group_documents.group(found.group, found.address, found.lags, lambda each: _unread_ms(view, each))
    behind = [each["behind_ms"] for each in document["partitions"] if each["behind_ms"] is not None]
    for each in document["members"]:
        each["has"] = {topic: ranges(numbers) for topic, numbers in (each["assigned"] or {}).items()}
    journal = view.past.get((Scope.GROUP, name))
    begin = journal.moments[0].time_ms - 1 if journal is not None and journal.moments else view.at_ms - 60_000
    within = past_numbers.span(max(begin, view.at_ms - RECENT_MS), view.at_ms)
    lag = past_numbers.lag(view.past, name, _topics_of(found), found.lag, within)
    return context | {
        "problem": "",
        "document": document,
        "heat": _heat(found),
        "owners": {
            (topic, n): each["instance"] or each["client"] or each["member"]
            for each in document["members"]
            for topic, numbers in (each["assigned"] or {}).items()
            for n in numbers
        },
        "paged": _paged(document["partitions"], parameters.get("page", "")),
        "oldest": max(behind, default=None),
        "chart": _plot("Lag", within, {"rows": lag}, "count"),
        "catch_up": _catch_up(view, found),
        "topics": _topics_of(found) or sorted(view.topics),
    }


HEAT = 5


def _heat(group: GroupView) -> dict[str, list[tuple[int, int | None, int]]]:
    """Return each partition of a group's topics with its lag, None if it has committed nothing there, and its heat."""
    found: dict[str, dict[int, int | None]] = {}
    for each in group.lags:
        found.setdefault(each.topic, {})[each.partition] = each.lag
    for topic_name, numbers in group.unstarted.items():
        found.setdefault(topic_name, {}).update(dict.fromkeys(numbers))
    most = max((lag for some in found.values() for lag in some.values() if lag), default=1)
    return {
        name: [(n, lag, -(-HEAT * lag // most) if lag else 0) for n, lag in sorted(some.items())]
        for name, some in found.items()
    }


def ranges(numbers: Collection[int]) -> str:
    """Return partitions in short.

    >>> ranges([0, 1, 2, 3, 7, 9, 8])
    '0–3, 7–9'
    """  # noqa: RUF002
    return ", ".join("–".join(map(str, each)) for each in _runs(numbers))  # noqa: RUF001 -- from one to another


def _runs(numbers: Collection[int]) -> list[list[int]]:
    """Return the first and the last of numbers that follow one another."""
    runs: list[list[int]] = []
    for each in sorted(numbers):
        if runs and each == runs[-1][-1] + 1:
            runs[-1][1:] = [each]
        else:
            runs.append([each])
    return runs


def _unread_ms(view: ClusterView, lag: PartitionLag) -> int | None:
    """Return how old the oldest unread row is at least, None if there is none. Reads no row: its chunk has times."""
    topic = view.topics[lag.topic].topic if lag.topic in view.topics else None
    if not lag.lag or topic is None:
        return None
    if lag.partition >= len(topic.partitions):  # the topic was created again since the group could be read
        return None
    pieces = topic.partitions[lag.partition].pieces_between(lag.unread, lag.unread + 1)
    return max(0, view.at_ms - pieces[0].max_timestamp // _US_PER_MS) if pieces else None


def _plot(title: str, within: Span, series: Mapping[str, Values], unit: str) -> dict[str, Any]:
    """Return a chart: what the script draws (`data`), and what it says in words."""
    times = [at / 1000 for at in within.times]
    rounded = [[None if each is None else round(each, 2) for each in values] for values in series.values()]
    data = {"x": times, "y": rounded, "names": list(series), "unit": unit, "since": within.since, "until": within.until}
    known = {name: [each for each in values if each is not None] for name, values in series.items()}
    said = {name: (each[-1], max(each)) if each else None for name, each in known.items()}
    drawn = msgspec.json.encode(data).decode()
    return {"title": title, "data": drawn, "said": said, "unit": unit, "paths": _paths(rounded), "within": within}


def _paths(series: Sequence[Values]) -> list[str]:
    """Return an SVG path of `STRIP_WIDTH` by 60 for each series, for pages without a script; gaps stay gaps."""
    most = max((each for values in series for each in values if each), default=1.0)
    paths = []
    for values in series:
        places = [
            None if each is None else f"{STRIP_WIDTH * at / max(1, len(values) - 1):.1f} {59 - 58 * each / most:.1f}"
            for at, each in enumerate(values)
        ]
        before = [None, *places]
        paths.append("".join(("L" if was else "M") + now for was, now in zip(before, places, strict=False) if now))
    return paths


def queries(view: ClusterView, parameters: Mapping[str, str]) -> dict[str, Any]:
    """Return the queries that write topics, and the groups that only store offsets."""
    del parameters
    topics = {name: each.topic for name, each in view.topics.items() if each.topic is not None}
    batches = past_numbers.batches(view.past)
    within = past_numbers.span(view.at_ms - RECENT_MS, view.at_ms)
    timed = {f"{each.name} → {each.topic}": past_numbers.intervals(each, within) for each in batches[:6]}
    return {
        "title": "Queries",
        "writers": [one for name, each in topics.items() for one in topic_documents.queries(name, each)],
        "readers": [each for each in view.groups.values() if each.group and not each.group.protocol_type],
        "known": {(each.topic, each.name): each for each in batches},
        "chart": _plot("Seconds between two batches", within, timed, "seconds") if timed else None,
        "unread": _unread(view, view.keys),
    }


def history(view: ClusterView, parameters: Mapping[str, str], most: int = MOMENTS_LISTED) -> dict[str, Any]:
    """Return what happened in a span of time, of everything, a topic or a group, as charts and as a list."""
    given = {name: parameters.get(name, "") for name in ("topic", "group", "from", "to", "lanes")}
    context: dict[str, Any] = {"title": "History", "given": given, "problem": "", "all_lanes": list(Lane)}
    of_topic, of_group = given["topic"], given["group"]
    if of_topic and of_topic not in view.topics:
        return context | _missing(view, "topic", of_topic, list(view.topics), "")
    if of_group and of_group not in view.groups:
        return context | _missing(view, "group", of_group, list(view.groups), "")
    keys = _keys(view, of_topic, of_group)
    known = {key: view.past[key] for key in keys if key in view.past}
    moments = [each for journal in known.values() for each in journal.moments]
    moments += () if of_topic or of_group else view.noticed
    try:
        since, until = span_of(given, [each.time_ms for each in moments], view.at_ms)
    except InvalidInput as error:
        return context | {"problem": error.message, "status": 400, "similar": []}
    within = past_numbers.span(since, until, view.at_ms)
    asked = {each for each in given["lanes"].split() if each in {lane.name.lower() for lane in Lane}}
    lanes = [each for each in Lane if (each.name.lower() in asked if asked else each not in QUIET)]
    inside = [each for each in moments if since <= each.time_ms <= until]
    listed, total = past_numbers.listed(inside, most, lanes)
    return context | {
        "given": given | {"lanes": " ".join(sorted(asked))},
        "span": within,
        "spans": _spans(within.since, within.until),
        "charts": _charts(view, within, of_topic, of_group),
        "marks": _marks(listed, within, lanes),
        "listed": listed,
        "total": total,
        "trimmed": {key: each for key, each in known.items() if each.begin > 1},
        "problems": {key: each.problem for key, each in known.items() if each.problem},
        "unread": _unread(view, keys),
    }


def _keys(view: ClusterView, topic: str, group: str) -> list[tuple[Scope, str]]:
    """Return the journals of a page about everything, a topic, or a group with the topics that it reads."""
    if topic:
        return [(Scope.CLUSTER, ""), (Scope.TOPIC, topic)]
    if group:
        return [(Scope.GROUP, group)]
    return view.keys


def _rates(
    view: ClusterView, within: Span, topics: Sequence[tuple[Scope, str]], groups: Sequence[str]
) -> list[dict[str, Any]]:
    """Return the charts of what was written to topics, and of what groups have committed."""
    rows: dict[str, Values] = {}
    charts = []
    if topics:
        rows["written"], sizes = past_numbers.rates(view.past, topics, within, "rows", "bytes")
        charts = [_plot("Bytes a second", within, {"written": sizes}, "bytes")]
    if groups:
        keys = [(Scope.GROUP, each) for each in groups]
        (rows["committed by groups"],) = past_numbers.rates(view.past, keys, within, "committed")
    return [_plot("Rows a second", within, rows, "rate"), *charts]


def _charts(view: ClusterView, within: Span, topic: str, group: str) -> list[dict[str, Any]]:
    topics = [(Scope.TOPIC, each) for each in ([topic] if topic else [] if group else view.topics)]
    groups = [group] if group else [] if topic else list(view.groups)
    charts = _rates(view, within, topics, groups)
    if topics:
        figures: dict[str, Figures] = {name: view.topics[name].figures for _, name in topics}
        found = past_numbers.out_of_sync(view.past, figures, within)
        charts.append(_plot("Replicas that are not in sync", within, {"replicas": found}, "count"))
    if groups:
        most = sorted((view.groups[name] for name in groups), key=lambda each: -each.lag)[:FURTHEST_BEHIND]
        lags = {
            each.group_id: past_numbers.lag(view.past, each.group_id, _topics_of(each), each.lag, within)
            for each in most
        }
        charts.append(_plot("Lag", within, lags, "count"))
    return charts


def _marks(listed: Sequence[Any], within: Span, lanes: Sequence[Lane]) -> dict[str, Any]:
    """Return a chart of what happened: a row for each lane, and a mark for each moment."""
    shown = [lane for lane in lanes if any(each.lane is lane for each in listed)]
    data = {
        "lanes": [lane.value for lane in shown],
        "marks": [
            [each.time_ms / 1000, shown.index(each.lane), each.is_bad, f"{each.name}: {each.words}"[:300], n]
            for n, each in enumerate(listed)
        ],
        "since": within.since,
        "until": within.until,
    }
    return {"title": "What happened", "data": msgspec.json.encode(data).decode(), "lanes": len(shown)}


TIMES = -(10**15) + 1, 10**15 - 1
"""All that an address can ask for, in ms."""


def span_of(given: Mapping[str, str], times: Sequence[int], now_ms: int) -> tuple[int, int]:
    """Return the time that an address asks for: all that is known unless it says otherwise. Raises `InvalidInput`."""
    since, until = given.get("from", ""), given.get("to", "")
    begin = time_ms_of(since) if since else min(times, default=now_ms - 60_000)
    end = time_ms_of(until) if until else max(now_ms, *times, begin + 1)
    return begin, max(end, begin + 1)


def _spans(since: int, until: int) -> dict[str, tuple[int, int]]:
    length = until - since
    spans = {
        "Earlier": (since - length, since),
        "Later": (until, until + length),
        "Zoom in": (since + length // 4, until - length // 4),
        "Zoom out": (since - length, until + length),
    }
    return {name: (max(begin, TIMES[0]), min(max(end, begin + 1), TIMES[1])) for name, (begin, end) in spans.items()}


def _unread(view: ClusterView, keys: Sequence[tuple[Scope, str]]) -> int:
    """Return how many journals have entries that are not known yet, and will be."""
    return sum(key not in view.past or not view.past[key].is_whole for key in keys)


def entry(past: Past, scope: str, number: int, name: str = "") -> dict[str, Any]:
    """Return one entry of a journal: what it did, and its events. Raises `LogError`."""
    found = past.entry(Scope(scope), name, number)
    title = f"Entry {number} of {f'{scope} {name}' if name else 'the cluster'}"
    if found is None:
        return {"title": title, "problem": "This entry was trimmed, or does not exist.", "status": 404}
    events = msgspec.json.format(msgspec.json.encode(found.events)).decode()
    return {"title": title, "entry": found, "events": events, "scope": scope, "name": name}


def rows(open_: Callable[[], Log], parameters: Mapping[str, str], masks: Sequence[str]) -> dict[str, Any]:
    """Return a page of rows, or why there is none. `open_` returns the log of this thread."""
    name = parameters["topic"]
    fields = ("partition", "offset", "time", "order", "key", "key_has", "value_has", "header", "field", "columns")
    given = {field: parameters.get(field, "") for field in fields}
    context = {
        "title": f"{name}: rows",
        "name": name,
        "given": given,
        "found": None,
        "problem": "",
        "mask": masks,
    }
    try:
        mask = mask_of(masks, name)
        wanted = stored_rows.wanted_of(parameters, mask)
        handle = open_().topic(name)
        found = stored_rows.read(handle, wanted, mask)
    except LogError as error:
        status, problem = failure(error)
        return context | {"status": status, "problem": problem}
    chosen = [each for each in given["columns"].split(",") if each in found.columns] or list(found.columns)
    older = None if found.at is None else stored_rows.cursor(found.at)
    return context | {
        "found": found,
        "columns": chosen,
        "ddl": topic_documents.columns(handle.schemas).get("schema", ""),
        "next": older,
        "is_later": bool(parameters.get("at")),
        "short": stored_rows.SHORT,
        "most": stored_rows.DOWNLOAD_ROWS,
    }


def download(log: Log, parameters: Mapping[str, Any], masks: Sequence[str]) -> bytes:
    """Return the rows of a page as a file. Raises `LogError`."""
    handle, mask = log.topic(parameters["topic"]), mask_of(masks, parameters["topic"])
    wanted = msgspec.structs.replace(stored_rows.wanted_of(parameters, mask), limit=stored_rows.DOWNLOAD_ROWS)
    return stored_rows.download(handle, wanted, parameters["form"], mask)


def row(log: Log, parameters: Mapping[str, Any], masks: Sequence[str]) -> dict[str, Any]:
    """Return one row in full. Raises `LogError`."""
    name, partition, offset = parameters["topic"], parameters["partition"], parameters["offset"]
    title = f"{name} {partition} {offset}"
    try:
        found = stored_rows.read_one(log.topic(name), partition, offset, mask_of(masks, name))
    except InvalidInput as error:
        return {"title": title, "problem": error.message, "status": 404}
    pretty = {column: _pretty(text) for column, text in found.columns.items()}
    return {"title": title, "name": name, "row": found, "pretty": pretty}


def failure(error: LogError) -> tuple[int, str]:
    """Return the status and the words of what cannot be shown. Of what does not exist no others are named."""
    if isinstance(error, (UnknownTopic, UnknownGroup)):
        return 404, f"There is no such {'topic' if isinstance(error, UnknownTopic) else 'group'}."
    return 409 if isinstance(error, GroupError) else 400 if isinstance(error, InvalidInput) else 503, error.message


def _pretty(text: str | None) -> str | None:
    """Return JSON with line breaks and indents, other text as it is."""
    if text is None or not text.startswith(("{", "[")):
        return text
    try:
        return msgspec.json.format(text.encode(), indent=2).decode()
    except (msgspec.DecodeError, RecursionError, ValueError):
        return text


def whole_number(text: str, default: int) -> int:
    """Return the whole number of a parameter, at least 0, or the default if it is none."""
    return int(text) if text.isascii() and text.isdigit() and len(text) < 20 else default  # noqa: PLR2004 -- of int64


def _paged(every: Sequence[Any], asked: str) -> dict[str, Any]:
    """Return one page of partitions, the one that is asked for or the last."""
    pages = max(1, -(-len(every) // PARTITIONS_SHOWN))
    page = min(whole_number(asked, 0), pages - 1)
    here = every[page * PARTITIONS_SHOWN :][:PARTITIONS_SHOWN]
    return {"here": here, "page": page, "pages": pages, "size": PARTITIONS_SHOWN, "total": len(every)}


def _partitions(found: Sequence[tuple[int, Partition]], broken: Collection[NodeId]) -> dict[str, Any]:
    """Return documents of partitions, each with its files as a `strip` of time, and when the strips begin and end."""
    firsts = [next(partition.pieces_from(0), None) for _, partition in found]
    since = min((each.min_timestamp for each in firsts if each is not None), default=None)
    until = None if since is None else max(partition.timestamp_reached for _, partition in found)
    documents = []
    for number_, each in found:
        strip, summary = _strip(each, since, until)
        document = topic_documents.partition(number_, each, broken)
        documents.append(document | {"strip": strip, "summary": summary, "bytes": size_of(each)})
    ends = (None, None) if since is None or until is None else (since // _US_PER_MS, until // _US_PER_MS)
    return {"partitions": documents, "since": ends[0], "until": ends[1]}


STRIP_WIDTH = 200
"""A strip has so many columns: a path has a bar for each run of them in which there are rows."""


def _strip(partition: Partition, since: int | None, until: int | None) -> tuple[dict[str, str], str]:
    """Return the files of a partition by time (microseconds): an SVG path for each kind, and what they are in words."""
    kinds: dict[str, list[SegmentRef | ChunkRef]] = {
        "parquet": [each for each in partition.segments if each.is_parquet],
        "log": [each for each in partition.segments if not each.is_parquet],
        "chunk": list(partition.chunks),
    }
    names = {"parquet": "Parquet segments", "log": ".log segments", "chunk": "unrolled chunks"}
    summary = ", ".join(f"{number(len(some))} {names[kind]}" for kind, some in kinds.items() if some)
    if since is None or until is None:
        return {}, summary
    scale = STRIP_WIDTH / max(1, until - since)
    strip = {}
    for kind, some in kinds.items():
        columns: set[int] = set()
        for each in some:
            first, last = (int((at - since) * scale) for at in (each.min_timestamp, each.max_timestamp))
            columns.update(range(min(first, STRIP_WIDTH - 1), min(last, STRIP_WIDTH - 1) + 1))
        path = "".join(f"M{run[0]} 0h{run[-1] - run[0] + 1}v9h-{run[-1] - run[0] + 1}z" for run in _runs(columns))
        if path:
            strip[kind] = path
    return strip, summary
