"""The commands of each state machine, as writers, members, maintainers and operators give them in a state.

They are made of what the state says, so that most are carried out. `number` is that of the newest entry.
"""

from pyspark_log_coordinator.assignors.subscription import (
    Assignment,
    Subscription,
    encode_assignment,
    encode_subscription,
)
from pyspark_log_coordinator.cluster import groups, journal_stores, nodes
from pyspark_log_coordinator.cluster import machine as cluster
from pyspark_log_coordinator.cluster.cluster_state import Cluster
from pyspark_log_coordinator.group import machine as group
from pyspark_log_coordinator.group.leaving import ExpireMember, LeaveGroup
from pyspark_log_coordinator.group.lifecycle import AlterGroupConfig, DeleteGroup, StartGroup
from pyspark_log_coordinator.group.offsets import Offset, OffsetCommit, OffsetDelete, ResetOffsets
from pyspark_log_coordinator.group.rebalance import CompleteJoin, ExpireSync
from pyspark_log_coordinator.group.state import Group, MemberDetails, Protocol
from pyspark_log_coordinator.group.sync import SyncGroup
from pyspark_log_coordinator.journal.journal_nodes import JournalNode
from pyspark_log_coordinator.journal.state_machine import BeginJournal, EndJournal, JournalEnded
from pyspark_log_coordinator.model.producers import ProducerClaim
from pyspark_log_coordinator.model.topic_config import TopicConfig
from pyspark_log_coordinator.replication.isr_shrink import Lagging
from pyspark_log_coordinator.replication.suspicion import Suspicion
from pyspark_log_coordinator.segments.retention import ApplyRetention, DeleteRecords
from pyspark_log_coordinator.segments.swap import SwapSegments
from pyspark_log_coordinator.topic import machine as topic
from pyspark_log_coordinator.topic.machine import Holder, SequencedFile, Topic
from pyspark_log_storage.columns import schema
from pyspark_log_storage.files.row_files import StagedChunk
from pyspark_log_storage.layout import born_name

ID = "f" * 32
NODES = tuple(JournalNode(each, f"/{each}", "i") for each in "012")
ASSIGNMENT = encode_assignment(Assignment({"t": (0,)}))
SCHEMAS = tuple(map(schema.encode, schema.RECORD_SCHEMAS))


def of_topic(state: Topic, number: int) -> list[topic.Command]:
    """Return the commands of a topic."""
    live = tuple(Holder(name, incarnation) for name, incarnation in state.incarnations.items())
    numbered = list(enumerate(state.partitions))
    file = SequencedFile(born_name(number, ID), live, (StagedChunk(0, 0, 64, 1, 0, 0, 0, 0),))
    files = tuple(range(state.first_file, state.next_file))
    segments = tuple((number, each.name) for number, at in numbered for each in at.segments)
    swaps = tuple(
        SwapSegments(number, at.leader_epoch, each) for number, at in numbered for each in (*at.segments, *at.staged)
    )
    suspicions = tuple(Suspicion(*each) for each in state.suspects.items())
    claims = [ProducerClaim("p", "q", "r", 1), ProducerClaim("p", "", "", 1, expires=True)]
    claims += [ProducerClaim(name, each.query_id, each.run_id, each.batch_id) for name, each in state.producers.items()]
    return [
        topic.CommitBatch(None, (file,)),
        *(topic.CommitBatch(each, (file,), acks, swaps) for each in claims for acks in ("all", "1")),
        topic.MaintainSegments(swaps),
        ApplyRetention(),
        DeleteRecords(0, -1),
        topic.RaiseOrphanFloor(number),
        *(topic.ConfirmDeletions(each.key) for each in state.pending_deletions),
        topic.AlterConfig({"min.insync.replicas": "2"}),
        topic.EvolveSchema(SCHEMAS[-1]),
        topic.ShrinkIsr(tuple(Lagging(n, at.isr[1:], at.leader_epoch, at.log_end) for n, at in numbered), suspicions),
        topic.ElectLeaders(live[-1:], suspicions, unclean=True),
        topic.ElectPreferred(live),
        *(command for each in live for command in of_node(state, each, files, segments)),
        topic.DeleteTopic(),
        EndJournal(JournalEnded(state.generation + 1, NODES)),
        BeginJournal(topic.MACHINE.encode_state(state)),
    ]


def of_node(
    state: Topic, holder: Holder, files: tuple[int, ...], segments: tuple[tuple[int, str], ...]
) -> list[topic.Command]:
    """Return the commands about one node of a topic."""
    moves = tuple(topic.PartitionReassignment(number, (holder.node,)) for number in range(len(state.partitions)))
    return [
        topic.HoldFiles(*holder_of(holder), files, segments),
        *(topic.DropStaged(*each) for each in segments),
        topic.Suspect(*holder_of(holder)),
        topic.CancelSuspicion(*holder_of(holder), state.suspicions),
        topic.AlterReplicaNode(holder.node, "another"),
        topic.AlterReplicaNode(*holder_of(holder), fenced=True),
        topic.AlterReplicas(moves, dict(state.incarnations)),
        topic.AddPartitions(((holder.node,),), dict(state.incarnations)),
    ]


def holder_of(holder: Holder) -> tuple[str, str]:
    return holder.node, holder.incarnation


def of_cluster(state: Cluster, number: int) -> list[cluster.Command]:
    """Return the commands of a cluster."""
    present = tuple(JournalNode(each.node_id, each.url, each.incarnation) for each in state.nodes.values())
    names = tuple(state.nodes)
    return [
        cluster.StartCluster("c", (nodes.Node("0", "", "", "i"),)),
        cluster.AddNode(nodes.Node("new", "/new", "", "i"), "/root"),
        *(
            command
            for each in names
            for command in (
                nodes.FenceNode(each, again=True),
                nodes.UnfenceNode(each),
                nodes.RenewNode(each, "/new", "another"),
                nodes.SetRack(each, "r"),
                nodes.RemoveNode(each, frozenset(t.topic_id for t in state.topics.values()), frozenset(), 0),
            )
        ),
        journal_stores.MoveJournals(names, ()),
        journal_stores.MoveJournals(names[:1], present),
        BeginJournal(cluster.MACHINE.encode_state(state)),
        cluster.CreateTopic("new", ID, 2, TopicConfig(), SCHEMAS),
        *(cluster.RemoveTopic(name, each.topic_id) for name, each in state.topics.items()),
        cluster.FinishDeletions(tuple(state.deletions)),
        groups.CreateGroup("new", ID),
        cluster.MoveCluster("/elsewhere"),
    ]


def of_group(state: Group, number: int) -> list[group.Command]:
    """Return the commands of a group."""
    subscribed = encode_subscription(Subscription(("t", "u"), {"t": (0, 1)}, 1))
    protocols = (Protocol("range", *subscribed), Protocol("cooperative-sticky", *subscribed))
    another = (Protocol("another", *subscribed),)
    joins = [MemberDetails(*each) for each in (("new", protocols), ("newer", protocols, "instance"), ("old", another))]
    joins += [each.details for each in state.members.values()]
    offsets = {
        topic_id: {number: Offset(at.offset) for number, at in at.items()} for topic_id, at in state.offsets.items()
    }
    barrier = state.barriers
    return [
        StartGroup("g"),
        *(group.JoinGroup(each, state.protocol_type or "consumer") for each in joins),
        *(group.JoinGroup(each, state.protocol_type, is_rejoin=True) for each in joins),
        CompleteJoin(barrier),
        ExpireSync(barrier),
        *(
            command
            for name, each in state.members.items()
            for command in (
                SyncGroup(name, state.generation, {name: ASSIGNMENT}, each.details.instance_id),
                LeaveGroup(name, each.details.instance_id),
                ExpireMember(name, each.acted),
                OffsetCommit(offsets, name, state.generation, each.details.instance_id, state.rewinds),
            )
        ),
        OffsetCommit({ID: {0: Offset(1)}}),
        OffsetDelete({topic_id: tuple(at) for topic_id, at in offsets.items()}),
        ResetOffsets({**offsets, ID: {0: Offset(1)}}, running=True),
        AlterGroupConfig({"group.initial.rebalance.delay.ms": "0"}),
        DeleteGroup(),
        EndJournal(JournalEnded(state.journal_generation + 1, NODES)),
        BeginJournal(group.MACHINE.encode_state(state)),
    ]
