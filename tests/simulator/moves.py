"""Operators who let nodes join and leave and migrate the journals, while everything else goes on.

Each does what the commands of the command line do: `nodes add`, `topics reassign`, `nodes drain`, `nodes remove` and
`cluster migrate-journals`. Some die in the middle, and the next one goes on. A disk whose node was removed is taken
away.
"""

from __future__ import annotations

from pyspark_log_coordinator.cluster.journal_stores import MoveJournals
from pyspark_log_coordinator.cluster.nodes import AT_THE_ROOT
from pyspark_log_coordinator.log import journal_move, node_admin
from pyspark_log_coordinator.log.log import Log
from pyspark_log_coordinator.model.partition import NodeId
from pyspark_log_coordinator.sync import reassigner
from pyspark_log_storage.errors import InvalidInput, LogError
from tests.simulator.actors import may_die, open_topic
from tests.simulator.disks import Disk
from tests.simulator.replicated_world import ReplicatedWorld
from tests.simulator.world import TOPIC, Process

_ADDS, _MIGRATES, _REMOVES = 0.5, 0.6, 0.5
"""How often an operator does one thing rather than the next."""
_MISTAKES = 0.1
"""How often an operator drains a node that cannot be removed, as it holds journals."""
_DRAIN_ROUNDS = 4
_DIES = 0.05
"""How often an operator dies between two steps, in worlds where processes crash."""


def mover(process: Process) -> None:
    """Change the nodes, again and again."""
    world, chance = process.world, process.chance
    assert isinstance(world, ReplicatedWorld)
    while world.busy:
        process.wait(0.05)
        _take_away(world)
        try:
            open_topic(process)
            if chance.random() < _ADDS and (new := _new_disks(world)):
                disk = chance.choice(new)
                node_admin.join(process.log, disk.url, disk.node_id, chance.choice(["", "a", "b"]))
            elif world.several_journals and chance.random() < _MIGRATES:
                _move_journals(world, process)
            elif chance.random() < _REMOVES:
                _drain_and_remove(world, process)
            else:
                _reassign(world, process)
        except InvalidInput:
            world.counts["refused"] += 1
        except LogError as error:
            world.excused(error)


def _take_away(world: ReplicatedWorld) -> None:
    """Take a disk away whose node was removed."""
    for each in world.removed():
        disk = world.disks[each.node_id]
        if not disk.is_gone and world.chance.random() < 0.5:
            disk.is_gone = True
            world.note(f"disk {each.node_id}", "taken away")


def _new_disks(world: ReplicatedWorld) -> list[Disk]:
    """Return the disks that have never been those of a node."""
    known = {*world.members(), *(each.node_id for each in world.removed())}
    return [disk for name, disk in world.disks.items() if name not in known]


def _has_journals(log: Log, node_id: NodeId) -> bool:
    """Return whether the cluster's journals are on a node, or some may still be."""
    if log.journals.nodes is None:
        return log.nodes[node_id].url == AT_THE_ROOT
    return node_id in log.cluster.state.journals.holders()


def _drain_and_remove(world: ReplicatedWorld, process: Process) -> None:
    """Move all replicas off a node, fence it and remove it, or leave off in the middle."""
    log, chance = process.log, process.chance
    if len(world.members()) <= world.settings.nodes.fewest:
        return
    names = sorted(world.members().keys() & log.cluster.state.nodes.keys())
    if chance.random() > _MISTAKES:
        names = [each for each in names if not _has_journals(log, each)]
    if not names:
        return
    name = chance.choice(names)
    wanted = reassigner.topics_to_drain(log, name)
    for _ in range(_DRAIN_ROUNDS):
        for handle, assignment in wanted:
            reassigner.begin(handle, assignment)
            may_die(process, _DIES)
            if reassigner.run(handle).unfinished:
                return
        may_die(process, _DIES)
        nodes = log.cluster.refresh().nodes
        is_fenced = name not in nodes or nodes[name].fenced
        wanted = reassigner.topics_to_drain(log, name)
        if is_fenced and not wanted:
            node_admin.remove(log, name)
            return
        if not is_fenced:
            node_admin.set_fenced(log, name, fenced=True)
            wanted = reassigner.topics_to_drain(log, name)


def _move_journals(world: ReplicatedWorld, process: Process) -> None:
    """Move the journals to other nodes, or die after the cluster's has ended: whoever opens the log goes on."""
    log, chance = process.log, process.chance
    names = [each for each, node in log.cluster.refresh().nodes.items() if not node.fenced and _answers(world, each)]
    chance.shuffle(names)
    to = tuple(names[: chance.choice([3, 3, 3, 5])])
    world.candidates[process.name] = to
    if chance.random() < _DIES and log.journals.nodes is not None:
        log.cluster.submit(MoveJournals(to))
        may_die(process, 1)
    journal_move.move(log, to)


def _answers(world: ReplicatedWorld, name: str) -> bool:
    """Return whether a node is well when an operator looks."""
    disk = world.disks[name]
    return disk.mounted and not disk.is_silent


def _reassign(world: ReplicatedWorld, process: Process) -> None:
    """Move the topic to other nodes, and copy what that needs."""
    handle, chance = process.log.topic(TOPIC), process.chance
    live = [name for name, each in process.log.cluster.state.nodes.items() if not each.fenced]
    chance.shuffle(live)
    chosen = live[: max(world.settings.nodes.replicas, chance.randint(2, 4))]
    reassigner.begin(handle, reassigner.placement_on(handle, chosen, world.settings.nodes.replicas))
    may_die(process, _DIES)
    reassigner.run(handle)


def settle(world: ReplicatedWorld, process: Process) -> None:
    """Finish what others left off: reassignments to nodes that were removed."""
    handle = process.log.topic(TOPIC)
    members = process.log.cluster.state.nodes.keys()
    targets = [set(each) for each in reassigner.target_placement(handle.journal.state)]
    if not set().union(*targets) <= members:
        reassigner.begin(handle, reassigner.placement_on(handle, sorted(members), world.settings.nodes.replicas))
