"""`pyspark-log cluster rebuild`: rebuild a cluster whose journals are lost, from the folders of its nodes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from pyspark_log.cli import arguments, output
from pyspark_log.cli.output import counted
from pyspark_log.documents.topics import handles_of
from pyspark_log.opening import open_log

if TYPE_CHECKING:
    from pyspark_log_coordinator.rebuild.survey import Survey

_METAVAR = "ADDRESS,ADDRESS"


@arguments.examples(
    "pyspark-log cluster rebuild --nodes /disk1/log,/disk2/log,/disk3/log",
    "pyspark-log cluster rebuild --nodes /disk2/log,/disk3/log --journals-lost --yes",
)
def rebuild(
    nodes: Annotated[
        str,
        typer.Option("--nodes", metavar=_METAVAR, help="Addresses of all remaining nodes.", show_default=False),
    ],
    journal_nodes: Annotated[
        str | None,
        typer.Option(
            "--journal-nodes",
            metavar=_METAVAR,
            help="Addresses of nodes for the new journals: one, or three or more (default: the nodes that had them).",
        ),
    ] = None,
    journals_lost: Annotated[
        bool,
        typer.Option("--journals-lost", help="Confirm that the journals were on nodes that are lost for good."),
    ] = False,
    yes: Annotated[
        bool, typer.Option("--yes", "-y", help="Rebuild the cluster; without it, only show the plan.")
    ] = False,
    json: arguments.Json = False,
) -> None:
    """Rebuild a cluster whose journals are all lost.

    Reads all segments in the folders of the nodes and keeps their offsets. Files without a place in the rebuilt cluster
    are set aside, never deleted. If the command is interrupted, run it again to continue.
    """
    from pyspark_log_coordinator.environment import real_environment
    from pyspark_log_coordinator.rebuild import execute
    from pyspark_log_coordinator.rebuild.survey import survey
    from pyspark_log_storage.stores.addresses import absolute_urls, open_store

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
        output.print_json(_document(found, aside))
        return
    if not yes:
        if found.journals_may_live is not None and not journals_lost:
            typer.echo(f"{found.journals_may_live}; if they are lost for good, add --journals-lost")
        typer.echo("nothing was changed; add --yes to rebuild the cluster")
        return
    typer.echo(f"rebuilt cluster {found.cluster_id}")
    typer.echo(f"address: {_address(found)}")
    typer.echo(f"files without a place, if any, are in {aside} on their nodes")
    typer.echo("next: copy to each node what it lacks, with pyspark-log maintain --watch or node run")


def _write_checkpoints(found: Survey) -> None:
    from pyspark_log_coordinator.maintenance import checkpoint_files

    for handle in handles_of(open_log(_address(found)), None):
        checkpoint_files.write_on_nodes(handle)


def _address(found: Survey) -> str:
    return ",".join(store.url for store in found.journal_stores)


def _print(found: Survey) -> None:
    typer.echo(f"cluster {found.cluster_id}; its journals will be at {_address(found)}")
    names = [each.node_id for each in found.given]
    columns = ("topic", "partition", *(f"node {name}" for name in names), "chosen", "rows", "lost")
    rows = [
        {
            "topic": plan.folder.topic,
            "partition": str(number),
            **{f"node {name}": f"{each.log_start}-{each.reached[name]}" for name in names},
            "chosen": f"{each.log_start}-{each.log_end}",
            "rows": each.rows,
            "lost": each.lost,
        }
        for plan in found.topics
        for number, each in enumerate(plan.partitions)
    ]
    output.print_table(columns, rows)
    for sentence in _sentences(found):
        typer.echo(sentence)


def _sentences(found: Survey) -> list[str]:
    """Return what the table does not show."""
    from pyspark_log_coordinator.cluster.nodes import AT_THE_ROOT

    said = []
    for each in found.absent:
        where = "the root" if each.url == AT_THE_ROOT else each.url
        said.append(f"node {each.node_id} ({where}) is not given; it will not be in the cluster")
    for plan in found.topics:
        name = plan.folder.topic
        if plan.description is None:
            said.append(
                f"topic {name}: its description is lost. Its settings will be the defaults with retention.ms=-1; rows "
                "that are not in segments are set aside; replayed batches will be appended again"
            )
        if plan.undecided:
            said.append(
                f"topic {name}: keeps {counted(plan.undecided, 'row')} of the newest batch, in a new leader epoch, "
                "although what is left of the journals does not show whether it was committed"
            )
        salvaged = [one for each in plan.partitions for one in each.segments if one.salvage is not None]
        if salvaged:
            rows = sum(one.end_offset - one.base_offset for one in salvaged)
            said.append(
                f"topic {name}: {counted(len(salvaged), 'segment')} damaged on every node; {counted(rows, 'row')} can "
                "be recovered from undamaged chunks"
            )
        unplaced = [file for file in found.unplaced if file.topic == name]
        if unplaced:
            size, rows = sum(file.bytes for file in unplaced), sum(file.rows for file in unplaced)
            said.append(
                f"topic {name}: {counted(len(unplaced), 'append file')} set aside with {counted(rows, 'row')} and "
                f"{size:,} bytes, because the offsets of the rows are unknown. They may be "
                "acknowledged rows, which `lost` does not count; print them with: pyspark-log dump FILE --rows"
            )
        aside = {stem for stems in plan.segments_aside.values() for stem in stems}
        if aside:
            said.append(
                f"topic {name}: {counted(len(aside), 'segment')} set aside, damaged or not part of the chosen log"
            )
    said += [f"topic {folder.topic} ({folder.topic_id}) is not rebuilt: {why}" for folder, why in found.left_out]
    said.append("groups and their committed offsets are not rebuilt; set the offsets with: pyspark-log groups import")
    return [*said, *found.damaged]


def _document(found: Survey, aside: str) -> dict[str, Any]:
    """Return the report; `aside` is the folder of files that were set aside, empty if nothing was changed."""
    import msgspec

    return {
        "cluster": found.cluster_id,
        "rebuilt": aside != "",
        "set_aside": aside or None,
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
                "undecided": plan.undecided,
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
