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

    Reads the newest description of each topic, and all files that it names, in the folders of the nodes. Offsets stay
    what they were. If the command is interrupted, run it again to continue.
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
    if yes:
        execute.rebuild(found, environment, journals_are_lost=journals_lost)
        _write_checkpoints(found)
    if json:
        output.print_json(_document(found, is_rebuilt=yes))
        return
    if not yes:
        if found.journals_may_live is not None and not journals_lost:
            typer.echo(f"{found.journals_may_live}; if they are lost for good, add --journals-lost")
        typer.echo("nothing was changed; add --yes to rebuild the cluster")
        return
    typer.echo(f"rebuilt cluster {found.cluster_id}")
    typer.echo(f"address: {_address(found)}")
    typer.echo("next: copy to each node what it lacks, with pyspark-log node run")


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
            "topic": one.state.name,
            "partition": str(number),
            **{f"node {name}": f"{each.log_start}-{one.reached(number, name)}" for name in names},
            "chosen": f"{each.log_start}-{each.log_end}",
            "rows": each.rows_between(each.log_start, each.log_end),
            "lost": sum(loss.rows for loss in one.losses if loss.partition == number),
        }
        for one in found.topics
        for number, each in enumerate(one.state.partitions)
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
    for one in found.topics:
        name = one.state.name
        said += [
            f"topic {name}, partition {loss.partition}, ends at offset {loss.offset}, and {counted(loss.rows, 'row')} "
            f"after it are lost: no node has {loss.file} whole. If a backup has it, put it there, and look again"
            for loss in one.losses
        ]
        if one.newer:
            said.append(
                f"topic {name}: newer than its description (entry {one.description.number}): "
                f"{counted(len(one.newer), 'append file')}, {counted(sum(one.newer.values()), 'byte')}, perhaps with "
                "acknowledged rows, which `lost` does not count. Kept for orphan.retention.ms; print the rows with: "
                "pyspark-log dump FILE --rows"
            )
    said += [f"topic {folder.topic} ({folder.topic_id}) is not rebuilt: {why}" for folder, why in found.left_out]
    said.append("groups and their committed offsets are not rebuilt; set the offsets with: pyspark-log groups import")
    return [*said, *found.damaged]


def _document(found: Survey, *, is_rebuilt: bool) -> dict[str, Any]:
    import msgspec

    return {
        "cluster": found.cluster_id,
        "rebuilt": is_rebuilt,
        "journals": [store.url for store in found.journal_stores],
        "journals_may_live": found.journals_may_live,
        "nodes": [{"node": each.node_id, "address": each.store.url} for each in found.given],
        "absent": [{"node": each.node_id, "address": each.url} for each in found.absent],
        "topics": [
            {
                "topic": one.state.name,
                "topic_id": one.state.topic_id,
                "entry": one.description.number,
                "partitions": [
                    {
                        "partition": number,
                        "log_start": each.log_start,
                        "log_end": each.log_end,
                        "nodes": {given.node_id: one.reached(number, given.node_id) for given in found.given},
                    }
                    for number, each in enumerate(one.state.partitions)
                ],
                "losses": msgspec.to_builtins(one.losses),
                "newer": one.newer,
            }
            for one in found.topics
        ],
        "left_out": [
            {"topic": folder.topic, "topic_id": folder.topic_id, "why": why} for folder, why in found.left_out
        ],
        "damaged": found.damaged,
    }
