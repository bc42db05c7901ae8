"""The commands of a story that are about replicas. The outcome after `->` is events, `no change`, or `refused ERROR`.

    copy NODE [files=N]            a follower's round: the node copies the files that it lacks, or the oldest N of them,
                                   records that, and describes the topic
    roll pN=FIRST..END [on=A,...]  a process makes a segment, on these nodes (A)
    shrink pN=B,...                a failure detector finds these members of the ISR lagging
    suspect NODE                   a process fails to reach a node
    reach NODE                     a failure detector reaches a node again
    leave gone=A,...               the suspicions of these nodes have stood for a full period
    elect live=A,... [gone=B,...] [unclean]
                                   an election: `live` nodes answer, and the suspicions of `gone` have stood for a full
                                   period
    prefer live=A,...              the preferred leaders lead again
    wipe NODE                      a node has lost all its files, and joins again in a new incarnation
    fence NODE, unfence NODE
    reassign pN=A,B,...            the partition moves to these nodes
    add A,B,... | C,D,...          partitions are added, on these nodes

Events are written in the order of the entry: `holds`, `p0 isr=A,B`, `p0 leader=B epoch=1 isr=B,C`,
`p0 lost 2..3 (batch 1: 2)`, `p0 rolled 0..9`, `p0 replicas=A,B adding=B removing=A`, `added 2`,
`suspected`, `reached`, `renewed`, `fenced`, `unfenced`.

    leo                            -> p0 A=N B=N ..., p1 ...
    leader                         -> p0=A/EPOCH p1=none/EPOCH
    replicas                       -> p0=A,B p1=...
    epochs pN                      -> EPOCH from OFFSET, ...
    ask pN epoch=E                 -> the end of the rows of epochs up to E
    cut pN epochs=E:FIRST,... end=N    -> the rows that a node keeps of a folder with these leader epochs
    checkpoint NODE                -> p0=N p1=N ...: the HW that the node described in its last round, up to its rows
    restart NODE [by=hw]           -> p0 keeps N, ...: the rows that the node keeps after a restart, by the leader
                                   epochs that it described, or by the HW there, as in Kafka before KIP-101
    look at=SECONDS                -> nobody lags | p0 lagging=B,C ...: the members that the failure detector of the
                                   topic finds out of sync
"""

from collections.abc import Callable
from typing import Any, Protocol

from pyspark_log_coordinator.model.partition import Holder
from pyspark_log_coordinator.model.topic_state import Topic
from pyspark_log_coordinator.replication import isr_shrink
from pyspark_log_coordinator.replication.election import ElectLeaders, ElectPreferred, LeaderElected
from pyspark_log_coordinator.replication.file_holders import FilesHeld, HoldFiles
from pyspark_log_coordinator.replication.isr_shrink import IsrShrunk, Lagging, ShrinkIsr
from pyspark_log_coordinator.replication.node_changes import (
    AlterReplicaNode,
    ReplicasFenced,
    ReplicasRenewed,
    ReplicasUnfenced,
)
from pyspark_log_coordinator.replication.reassignment import (
    AddPartitions,
    AlterReplicas,
    PartitionsAdded,
    ReplicasAltered,
)
from pyspark_log_coordinator.replication.row_loss import RowsLost
from pyspark_log_coordinator.replication.suspicion import (
    CancelSuspicion,
    NodeSuspected,
    Suspect,
    SuspicionCancelled,
)
from pyspark_log_coordinator.replication.truncation import divergence
from pyspark_log_coordinator.segments.swap import MaintainSegments, SegmentsSwapped
from pyspark_log_coordinator.sync import replica_file
from pyspark_log_coordinator.topic import machine as topic
from tests.support.coordinator import topics
from tests.support.coordinator.scenario_words import StoryError, partition_number, settings, split


class Played(Protocol):
    """A topic that a story is about."""

    @property
    def state(self) -> Topic: ...
    def submit(self, command: topic.Command) -> list[Any]: ...


def commands(here: Callable[[], Played]) -> dict[str, Callable[[list[str]], str]]:
    """Return the commands by name; `here` is the topic that the story is about just now."""

    def told(decide: Callable[[Topic, list[str]], topic.Command]) -> Callable[[list[str]], str]:
        def act(words: list[str]) -> str:
            played = here()
            return ", ".join(map(_tell, played.submit(decide(played.state, words)))) or "no change"

        return act

    def asked(answer: Callable[[Topic, list[str]], str]) -> Callable[[list[str]], str]:
        return lambda words: answer(here().state, words)

    known: dict[tuple[Played, str], Topic] = {}
    lags: dict[Played, dict[isr_shrink.FollowerId, isr_shrink.FollowerLag]] = {}

    def copy(words: list[str]) -> str:
        said = told(_copy)(words)
        known[here(), words[0]] = here().state
        return said

    def checkpoint(words: list[str]) -> str:
        (node,) = words
        return " ".join(f"p{n}={mark}" for n, mark in _marks(known[here(), node], node).items())

    def restart(words: list[str]) -> str:
        node, *rest = words
        by = settings(rest, "by").get("by", "epochs")
        if by not in ("epochs", "hw"):
            raise StoryError(f"nothing is cut by {by!r}")
        return _restart(here().state, node, known[here(), node], by)

    def look(words: list[str]) -> str:
        played, now = here(), int(settings(words, "at")["at"]) * 1000
        lags[played] = isr_shrink.observe_all(lags.get(played, {}), played.state, now)
        found = isr_shrink.lagging(lags[played], played.state, now)
        return " ".join(f"p{p} lagging={','.join(each.nodes)}" for p, each in found.items()) or "nobody lags"

    return {
        "copy": copy,
        "checkpoint": checkpoint,
        "restart": restart,
        "look": look,
        "roll": told(_roll),
        "shrink": told(_shrink),
        "suspect": told(lambda state, words: Suspect(words[0], state.incarnations[words[0]])),
        "reach": told(_reach),
        "leave": told(lambda state, words: ShrinkIsr({}, _suspicions(state, settings(words, "gone")["gone"]))),
        "elect": told(_elect),
        "prefer": told(lambda state, words: ElectPreferred(_holders(state, settings(words, "live")["live"]))),
        "wipe": told(lambda state, words: AlterReplicaNode(words[0], f"{state.incarnations[words[0]]} again")),
        "fence": told(lambda state, words: AlterReplicaNode(words[0], state.incarnations[words[0]], fenced=True)),
        "unfence": told(lambda state, words: AlterReplicaNode(words[0], state.incarnations[words[0]])),
        "reassign": told(_reassign),
        "add": told(_add),
        "leo": asked(_log_end_offsets),
        "leader": asked(_leaders),
        "replicas": asked(_replicas),
        "epochs": asked(_epochs),
        "ask": asked(_ask),
        "cut": asked(_cut),
    }


def _copy(state: Topic, words: list[str]) -> HoldFiles:
    node, *rest = words
    given = settings(rest, "files")
    files, segments = replica_file.ids(replica_file.missing(state, node))
    if "files" in given:
        files, segments = files[: int(given["files"])], ()
    return HoldFiles(node, state.incarnations[node], files, segments)


def _marks(known: Topic, node: str) -> dict[int, int]:
    mine = {number: each for number, each in enumerate(known.partitions) if node in each.replicas}
    return {number: min(each.high_watermark, each.log_end_offsets[node]) for number, each in mine.items()}


def _restart(state: Topic, node: str, known: Topic, by: str) -> str:
    """Return what a node keeps of the rows that it has, by what it described."""
    kept = {}
    for number, mark in _marks(known, node).items():
        partition, then = state.partitions[number], known.partitions[number]
        end = partition.log_end_offsets[node]
        first, *later = then.epoch_starts
        epochs = [first, *(each for each in later if node == then.leader or each[1] < then.log_end_offsets[node])]
        by_epochs = divergence(epochs, end, partition.epoch_starts, partition.log_end)
        kept[number] = min(end, mark) if by == "hw" else by_epochs
    return ", ".join(f"p{number} keeps {end}" for number, end in kept.items())


def _roll(state: Topic, words: list[str]) -> MaintainSegments:
    (where, span), *rest = (word.partition("=")[::2] for word in words)
    nodes = dict(rest).get("on", "A").split(",")
    first, _, last = span.partition("..")
    number = partition_number(where)
    epoch = state.partitions[number].leader_epoch
    return MaintainSegments((topics.swap(int(first), int(last) + 1, number, epoch=epoch, on=nodes),))


def _shrink(state: Topic, words: list[str]) -> ShrinkIsr:
    pairs = [(partition_number(name), nodes.split(",")) for name, _, nodes in (word.partition("=") for word in words)]
    found = [(p, tuple(nodes), state.partitions[p]) for p, nodes in pairs]
    return ShrinkIsr({p: Lagging(nodes, one.leader_epoch, one.leader_end) for p, nodes, one in found})


def _elect(state: Topic, words: list[str]) -> ElectLeaders:
    given = settings(words, "live", "gone", flags=("unclean",))
    gone = _suspicions(state, given.get("gone", ""))
    return ElectLeaders(_holders(state, given.get("live", "")), gone, unclean="unclean" in given)


def _suspicions(state: Topic, nodes: str) -> dict[str, int]:
    return {node: state.suspects.get(node, 0) for node in nodes.split(",") if node}


def _reach(state: Topic, words: list[str]) -> CancelSuspicion:
    (node,) = words
    return CancelSuspicion(node, state.incarnations[node], state.suspects.get(node, 0))


def _reassign(state: Topic, words: list[str]) -> AlterReplicas:
    pairs = [word.partition("=")[::2] for word in words]
    assignments = {partition_number(name): tuple(nodes.split(",")) for name, nodes in pairs}
    named = {node for nodes in assignments.values() for node in nodes}
    return AlterReplicas(assignments, {node: _incarnation(state, node) for node in named})


def _add(state: Topic, words: list[str]) -> AddPartitions:
    assignments = tuple(tuple(nodes.split(",")) for (nodes,) in split(words, "|"))
    return AddPartitions(assignments, {node: _incarnation(state, node) for nodes in assignments for node in nodes})


def _incarnation(state: Topic, node: str) -> str:
    return state.incarnations.get(node, topics.incarnation(node))


def _holders(state: Topic, nodes: str) -> tuple[Holder, ...]:
    return tuple(Holder(node, state.incarnations[node]) for node in nodes.split(",") if node)


def _tell(event: Any) -> str:
    if type(event) in _TOLD:
        return _TOLD[type(event)]
    if isinstance(event, PartitionsAdded):
        return f"added {len(event.assignments)}"
    return f"p{event.partition} {_tell_of_partition(event)}"


_TOLD = {
    FilesHeld: "holds",
    NodeSuspected: "suspected",
    SuspicionCancelled: "reached",
    ReplicasRenewed: "renewed",
    ReplicasFenced: "fenced",
    ReplicasUnfenced: "unfenced",
}


def _tell_of_partition(event: Any) -> str:
    match event:
        case IsrShrunk():
            return f"isr={','.join(event.isr)}"
        case LeaderElected():
            return f"leader={event.leader or 'none'} epoch={event.leader_epoch} isr={','.join(event.isr) or 'nobody'}"
        case RowsLost():
            whose = [(each.batch_id if each.producer else "none", each.rows) for each in event.batches]
            batches = " ".join(f"(batch {batch}: {rows})" for batch, rows in whose)
            return f"lost {event.start}..{event.end - 1} {batches}".rstrip()
        case SegmentsSwapped():
            return f"rolled {event.segment.base_offset}..{event.segment.end_offset - 1}"
        case ReplicasAltered():
            lists = {"replicas": event.replicas, "adding": event.adding, "removing": event.removing}
            return " ".join(f"{name}={','.join(each)}" for name, each in lists.items() if each)
    raise StoryError(f"a story has no words for {event}")


def _log_end_offsets(state: Topic, words: list[str]) -> str:
    each = enumerate(state.partitions)
    return ", ".join(f"p{n} " + " ".join(f"{node}={end}" for node, end in p.log_end_offsets.items()) for n, p in each)


def _leaders(state: Topic, words: list[str]) -> str:
    return " ".join(f"p{n}={each.leader or 'none'}/{each.leader_epoch}" for n, each in enumerate(state.partitions))


def _replicas(state: Topic, words: list[str]) -> str:
    return " ".join(f"p{n}={','.join(each.replicas)}" for n, each in enumerate(state.partitions))


def _epochs(state: Topic, words: list[str]) -> str:
    partition = state.partitions[partition_number(words[0])]
    return ", ".join(f"{epoch} from {start}" for epoch, start in partition.epoch_starts)


def _ask(state: Topic, words: list[str]) -> str:
    epoch = int(settings(words[1:], "epoch")["epoch"])
    return str(state.partitions[partition_number(words[0])].end_of_epoch(epoch))


def _cut(state: Topic, words: list[str]) -> str:
    partition = state.partitions[partition_number(words[0])]
    given = settings(words[1:], "epochs", "end")
    pairs = [tuple(map(int, pair.split(":"))) for pair in given["epochs"].split(",")]
    kept = divergence(pairs, int(given["end"]), partition.epoch_starts, partition.log_end)  # type: ignore[arg-type]
    return f"keeps {kept}"
