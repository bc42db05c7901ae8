"""Which journal nodes vote, and what to do about one that does not, for `nodes`, `node run` and `cluster describe`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark_log.cli import output

if TYPE_CHECKING:
    from pyspark_log_coordinator.log.log import Log

VOTES, DOES_NOT_VOTE = "votes", "does not vote"


def states(log: Log) -> dict[str, str]:
    """Return whether each journal node votes now, by node id; empty if the journals are on the root alone."""
    missing = log.journals.missing_nodes()
    return {node: DOES_NOT_VOTE if node in missing else VOTES for node in log.journals.node_ids}


def print_advice(log: Log) -> None:
    """Print on stderr what to do if journal nodes do not vote because their stores were replaced. Reads nothing."""
    replaced = log.journals.replaced_nodes()
    if not replaced or log.journals.nodes is None:
        return
    ids = ",".join(each.node for each in log.journals.nodes.nodes)
    nodes = f"node {replaced[0]} does" if len(replaced) == 1 else f"nodes {', '.join(replaced)} do"
    output.print_error(
        f"{nodes} not vote in the journals, because the disk was replaced; migrate the journals with: pyspark-log "
        f"cluster migrate-journals --to {ids}"
    )
