"""`pyspark-log cluster rebuild`: rebuild a cluster whose journals are lost, from the folders of its nodes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer

from pyspark_log.cli.command import Result, command
from pyspark_log.documents.topics import handles_of
from pyspark_log.opening import open_log
from pyspark_log_coordinator.environment import real_environment
from pyspark_log_coordinator.maintenance import descriptions
from pyspark_log_coordinator.rebuild import execute
from pyspark_log_coordinator.rebuild.survey import survey
from pyspark_log_storage.stores.addresses import absolute_urls, open_store

if TYPE_CHECKING:
    from pyspark_log_coordinator.rebuild.survey import Survey

_METAVAR = "ADDRESS,ADDRESS"


@command(
    "pyspark-log cluster rebuild --nodes /disk1/log,/disk2/log,/disk3/log",
    "pyspark-log cluster rebuild --nodes /disk2/log,/disk3/log --journals-lost --yes",
)
def rebuild(
    nodes: Annotated[str, typer.Option("--nodes", metavar=_METAVAR, help="Addresses of all remaining nodes.")],
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
) -> Result:
    """Rebuild a cluster whose journals are all lost.

    Reads the newest description of each topic, and all files that it names, in the folders of the nodes. Offsets stay
    what they were. If the command is interrupted, run it again to continue.

    The plan says for each partition where it ends on each node, and which rows are lost because no node has their file
    whole. If a backup has that file, put it there before you rebuild. Files that are newer than a topic's description
    may have acknowledged rows that are not counted as lost: pyspark-log dump FILE --rows prints them. Groups are not
    rebuilt; set their offsets with pyspark-log groups import. Afterwards copy to each node what it lacks with
    pyspark-log node run.
    """
    environment = real_environment()
    stores = [open_store(url) for url in absolute_urls(nodes)]
    journals = () if journal_nodes is None else absolute_urls(journal_nodes)
    plan = survey(stores, environment, journals, open_node=open_store)
    if yes:
        execute.rebuild(plan, environment, journals_are_lost=journals_lost)
        for handle in handles_of(open_log(",".join(store.url for store in plan.journal_stores)), None):
            descriptions.write_on_nodes(handle)
    document = _document(plan, is_rebuilt=yes)
    return Result(document, text=_shown(document))


def _document(plan: Survey, *, is_rebuilt: bool) -> dict[str, Any]:
    return {
        "cluster": plan.cluster_id,
        "rebuilt": is_rebuilt,
        "journals": [store.url for store in plan.journal_stores],
        "journals_may_live": plan.journals.may_live,
        "nodes": [{"node": each.node_id, "address": each.store.url} for each in plan.given],
        "absent": [{"node": each.node_id, "address": each.url} for each in plan.absent],
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
                        "nodes": {given.node_id: one.reached(number, given.node_id) for given in plan.given},
                    }
                    for number, each in enumerate(one.state.partitions)
                ],
                "losses": msgspec.to_builtins(one.losses),
                "newer": one.newer,
            }
            for one in plan.topics
        ],
        "left_out": [{"topic": folder.topic, "topic_id": folder.topic_id, "why": why} for folder, why in plan.left_out],
        "damaged": plan.damaged,
    }


def _shown(document: dict[str, Any]) -> dict[str, Any]:
    """Return the document with one table for each list that its topics have."""
    topics = document["topics"]
    newer = [each["newer"].items() for each in topics]
    return document | {
        "topics": [{"topic": each["topic"]} | one for each in topics for one in each["partitions"]],
        "losses": [{"topic": each["topic"]} | one for each in topics for one in each["losses"]],
        "newer": [{"file": file, "bytes": size} for files in newer for file, size in files],
    }
