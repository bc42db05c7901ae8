"""`pyspark-log cluster rebuild`: a cluster whose every journal is gone, from the folders of its nodes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from pyspark_log.cli import arguments

if TYPE_CHECKING:
    from pyspark_log_coordinator.rebuild.survey import Survey

EXAMPLES = """\b
Examples:
  pyspark-log cluster rebuild --nodes /disk1/log,/disk2/log,/disk3/log
  pyspark-log cluster rebuild --nodes /disk2/log,/disk3/log --journals-lost --yes
"""
_METAVAR = "ADDRESS,ADDRESS"


def rebuild(
    nodes: Annotated[
        str,
        typer.Option("--nodes", metavar=_METAVAR, help="All nodes that are left.", show_default=False),
    ],
    journal_nodes: Annotated[
        str | None,
        typer.Option(
            "--journal-nodes",
            metavar=_METAVAR,
            help="Which of them get the journals: one, or three and more; those that had them if none is named.",
        ),
    ] = None,
    journals_lost: Annotated[
        bool,
        typer.Option("--journals-lost", help="The nodes with the journals are not given, and are gone for good."),
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do it; else it is only shown what would be done.")] = False,
    json: arguments.Json = False,
) -> None:
    """Make a cluster again whose journals are all gone.

    It is made from the folders of its nodes. Without --yes nothing is changed. It reads all segments on all nodes. The
    offsets of what is found stay what they were. What has no place is set aside, never removed. What was cut short is
    finished by the same command again.
    """
    from pyspark_log.cli import output
    from pyspark_log_coordinator.environment import real_environment
    from pyspark_log_coordinator.rebuild import execute
    from pyspark_log_coordinator.rebuild.survey import survey
    from pyspark_log_storage.store import absolute_urls, open_store

    environment = real_environment()
    stores = [open_store(url) for url in absolute_urls(nodes)]
    journals = () if journal_nodes is None else absolute_urls(journal_nodes)
    found = survey(stores, environment, journals, open_node=open_store)
    if not json:
        _print(found)
    aside = ""
    if yes:
        aside = execute.rebuild(found, environment, journals_are_lost=journals_lost)
        _write_checkpoints(found)
    if json:
        output.print_json(_document(found, done=yes))
        return
    if not yes:
        if found.journals_may_live is not None and not journals_lost:
            typer.echo(f"{found.journals_may_live}; where that is gone for good, add --journals-lost")
        typer.echo("nothing was changed; do it with --yes")
        return
    typer.echo(f"rebuilt cluster {found.cluster_id}; its address: {_address(found)}")
    typer.echo(f"what had no place, if anything, is in {aside} on its node")
    typer.echo("next: pyspark-log maintain --watch, or node run, copies to each node what it misses")


def _write_checkpoints(found: Survey) -> None:
    from pyspark_log.client.opening import open_log
    from pyspark_log_coordinator.maintenance import checkpoint_files

    log = open_log(_address(found))
    for name in log.topics():
        checkpoint_files.write_on_nodes(log.topic(name))


def _address(found: Survey) -> str:
    return ",".join(store.url for store in found.journal_stores)


def _print(found: Survey) -> None:
    from pyspark_log.cli import output

    typer.echo(f"cluster {found.cluster_id}; its journals will be at {_address(found)}")
    names = [each.node_id for each in found.given]
    columns = ("topic", "partition", *(f"node {name}" for name in names), "chosen", "rows", "lost")
    rows = [
        (
            plan.folder.topic,
            str(number),
            *(f"{each.log_start}-{each.reached[name]}" for name in names),
            f"{each.log_start}-{each.log_end}",
            each.log_end - each.log_start,
            each.lost,
        )
        for plan in found.topics
        for number, each in enumerate(plan.partitions)
    ]
    output.print_table(columns, rows)
    for sentence in _sentences(found):
        typer.echo(sentence)


def _sentences(found: Survey) -> list[str]:
    """Return what else there is to know."""
    from pyspark_log_coordinator.cluster.nodes import AT_THE_ROOT

    said = []
    for each in found.absent:
        where = "the root" if each.url == AT_THE_ROOT else each.url
        said.append(f"node {each.node_id} ({where}) is not given: it leaves the cluster")
    for plan in found.topics:
        name = plan.folder.topic
        if plan.description is None:
            said.append(
                f"topic {name}: it has no description. Its configuration is the default, with retention.ms=-1; rows "
                "that are not in segments have no place; batches that are replayed are appended again"
            )
        salvaged = [one for each in plan.partitions for one in each.segments if one.salvage is not None]
        if salvaged:
            rows = sum(one.end_offset - one.base_offset for one in salvaged)
            said.append(
                f"topic {name}: {len(salvaged):,} segments are whole on no node; {rows:,} rows of them can be had, "
                "chunk by chunk"
            )
        unplaced = [file for file in found.unplaced if file.topic == name]
        if unplaced:
            size, rows = sum(file.bytes for file in unplaced), sum(file.rows for file in unplaced)
            said.append(
                f"topic {name}: {len(unplaced):,} append files with {rows:,} rows and {size:,} bytes are not "
                "recovered, for nothing says where their rows belong; they are set aside"
            )
        aside = {stem for stems in plan.segments_aside.values() for stem in stems}
        if aside:
            said.append(
                f"topic {name}: {len(aside):,} segments that are damaged on some node, or no part of what is chosen, "
                "are set aside there"
            )
    said += [f"topic {folder.topic} ({folder.topic_id}) is left as it is: {why}" for folder, why in found.left_out]
    return [*said, *found.damaged]


def _document(found: Survey, *, done: bool) -> dict[str, Any]:
    import msgspec

    return {
        "cluster": found.cluster_id,
        "rebuilt": done,
        "journals": [store.url for store in found.journal_stores],
        "journals_may_live": found.journals_may_live,
        "nodes": [{"node": each.node_id, "address": each.store.url} for each in found.given],
        "absent": [{"node": each.node_id, "address": each.url} for each in found.absent],
        "topics": [
            {
                "topic": plan.folder.topic,
                "topic_id": plan.folder.topic_id,
                "described": plan.description is not None,
                "partitions": [
                    {
                        "partition": number,
                        "log_start": each.log_start,
                        "log_end": each.log_end,
                        "nodes": each.reached,
                        "lost": each.lost,
                    }
                    for number, each in enumerate(plan.partitions)
                ],
                "segments_set_aside": plan.segments_aside,
            }
            for plan in found.topics
        ],
        "unplaced": msgspec.to_builtins(found.unplaced),
        "left_out": [
            {"topic": folder.topic, "topic_id": folder.topic_id, "why": why} for folder, why in found.left_out
        ],
        "damaged": found.damaged,
    }
