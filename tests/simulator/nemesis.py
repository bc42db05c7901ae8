"""The nemesis: what happens to the disks of a world, and the people who put that right.

A disk may be away, slow or unmounted at any time, several at once. What it has is taken as far as the journal promises
that nothing is lost by that: another member of the ISR, of which no fault has taken it, must have every row below the
HW. Whether it really has, nobody looks. A whole disk is taken only where `min.insync.replicas` is 2, and only one at a
time until its node is renewed, for a batch that is about to be acknowledged may be on two disks alone. The root's disk
of a world with one journal store keeps the journal.
"""

from __future__ import annotations

from pyspark_log_coordinator.audit import repair
from pyspark_log_coordinator.log import node_admin
from pyspark_log_coordinator.log.log import TopicHandle
from pyspark_log_coordinator.maintenance import follower as following
from pyspark_log_coordinator.maintenance import topic_cleanup
from pyspark_log_coordinator.maintenance.follower import Follower
from pyspark_log_coordinator.model.partition import Holder
from pyspark_log_coordinator.replication import replicas
from pyspark_log_coordinator.replication.election import ElectLeaders, ElectPreferred
from pyspark_log_coordinator.replication.reassignment import AlterReplicas
from pyspark_log_coordinator.replication.suspicion import Suspect
from pyspark_log_coordinator.sync import faults
from pyspark_log_coordinator.sync.failure_detector import failure_detector_of
from pyspark_log_coordinator.sync.replica_file import live
from pyspark_log_storage.errors import InvalidInput, InvalidOption, LogError
from tests.simulator import moves
from tests.simulator.actors import open_topic
from tests.simulator.disks import Disk
from tests.simulator.invariants import require
from tests.simulator.replicas import ReplicatedRows, is_quorum
from tests.simulator.replicated_world import ReplicatedWorld
from tests.simulator.world import TOPIC, Process


def trouble(world: ReplicatedWorld) -> None:
    """Let things happen to the disks, one after another, until the world calms down."""
    chance, nodes = world.chance, world.settings.nodes
    while world.busy:
        world.clock.pause(chance.uniform(0, 2 * nodes.calm_seconds))
        if not world.busy:
            return
        disk = chance.choice(list(world.members().values()))
        if chance.random() < nodes.disk_faults:
            _take(world, disk)
            world.hold()
        else:
            _be_away(world, disk)


def _be_away(world: ReplicatedWorld, disk: Disk) -> None:
    chance = world.chance
    what = chance.choice(["silent", "silent", "slow", "unmounted", "back", "back", *world.settings.nodes.more_troubles])
    if what == "silent":
        names = sorted({each.name for each in world.process_of.values()})
        disk.be_silent(chance.choice([0.05, 0.3, 1.0]), chance.choice([None, None, chance.choice(names)]))
    elif what == "slow":
        disk.slowness = chance.choice([5, 50])
    elif what == "read-only":
        disk.take_nothing()
    elif what == "unmounted" and not disk.in_hand and not world.journals_need(disk):
        disk.unmount()
    else:
        what = "back"
        disk.come_back()
    world.note(f"disk {disk.node_id}", what)


def _take(world: ReplicatedWorld, disk: Disk) -> None:
    """Take something of what a disk has, where that is allowed."""
    chance = world.chance
    disk.take_backup_when_due(world.is_data, chance)
    what = chance.choice(["lost file", "flipped", "set back", "wiped", "restored"])
    if what in {"lost file", "flipped", "set back"}:
        # Of rows above the HW nobody else may have a copy. As long as the node lives no election cuts them.
        keys = sorted(
            key for key in needed(world) if key in disk.real.data and may_lose(world, disk, {key}, above=True)
        )
        if not keys:
            return
        if what == "lost file":
            disk.lose(chance.choice(keys))
        elif what == "set back":
            for key in keys[chance.randrange(len(keys)) :]:  # the newest append files come last
                if may_lose(world, disk, {key}, above=True):
                    disk.lose(key)
        else:
            disk.flip(chance.choice(keys), chance.randrange(10**6))
    elif not may_be_taken(world, disk):
        return
    elif what == "wiped":
        if world.journals_need(disk):
            return
        disk.wipe()
    else:
        disk.restore(world.is_data)
        disk.restored = True
    world.note(f"disk {disk.node_id}", what)


def needed(world: ReplicatedWorld) -> set[str]:
    """Return the keys that the newest state names."""
    return world.rows.needed() if world.rows is not None else set()


def may_be_taken(world: ReplicatedWorld, disk: Disk) -> bool:
    """Return whether all that a disk has may be taken."""
    if world.rows is None or not world.rows.number or world.state.config.min_insync_replicas < 2:
        return False
    known = world.state.incarnations
    members = {name: disk for name, disk in world.members().items() if name in known}
    if any(each.incarnation != known[name] or each.restored for name, each in members.items()):
        return False
    return may_lose(world, disk, None, above=not is_replaceable(world, disk))


def is_replaceable(world: ReplicatedWorld, disk: Disk) -> bool:
    """Return whether the disk may be swapped for an empty one: it holds no journal that the others rely on."""
    return not world.holds_journals(disk)


def may_lose(world: ReplicatedWorld, disk: Disk, keys: set[str] | None, *, above: bool) -> bool:
    """Return whether the journal promises what is below the HW, or also `above` it, on another disk, too.

    That is the disk of a member of the ISR, or of any holder where a majority commits, of which no fault has taken it.
    If replicas may be moved, no fault may have taken it of any holder. `keys` None means all that the disk has.
    """
    rows, state = world.rows, world.state
    assert isinstance(rows, ReplicatedRows)
    for p, partition in enumerate(state.partitions):
        for piece in (*partition.segments, *partition.chunks):
            mine = rows.keys_of(state, p, piece)
            if keys is not None and not mine & keys:
                continue
            if piece.base_offset >= partition.high_watermark and not above:
                # Where another's copy was taken too, the HW may move over it yet: nobody knows.
                if any(mine & other.lost for other in world.members().values() if other is not disk):
                    return False
                continue
            holding = {each.node for each in replicas.holders(state, piece)}
            is_promised = piece.end_offset <= partition.high_watermark
            promised = set(partition.isr) if is_promised and not is_quorum(state) else holding & set(partition.isr)
            kept = {
                name
                for name in (holding | promised) & world.members().keys()
                if world.disks[name].incarnation == state.incarnations.get(name) and not mine & world.disks[name].lost
            }
            # Who moves replicas trusts what the journal says of copies, before a scrub has found what was taken.
            others = holding & world.members().keys() - {disk.node_id}
            if world.settings.nodes.movers and not others <= kept:
                return False
            if not promised & kept - {disk.node_id}:
                return False
    return True


def operator(process: Process) -> None:
    """Put right what happened to the disks, and change what an operator may change."""
    world, chance = process.world, process.chance
    assert isinstance(world, ReplicatedWorld)
    while world.busy:
        try:
            handle = open_topic(process)
            number = chance.randrange(world.settings.partitions)
            name = chance.choice(list(world.members()))
            match chance.randrange(9):
                case 0:
                    node_admin.set_fenced(process.log, name, fenced=True)
                case 1 | 2:
                    for fenced in [each for each, node in process.log.cluster.state.nodes.items() if node.fenced]:
                        node_admin.set_fenced(process.log, fenced, fenced=False)
                case 3 | 4:
                    for each in world.members().values():
                        replace_disk(world, process, each)
                case 5:
                    repair.repair(handle)
                    repair.repair_journals(process.log)
                case 6:
                    handle.submit(AlterReplicas({number: _moved(world)}, incarnations(process)))
                case 7:
                    live = tuple(Holder(*each) for each in handle.journal.state.incarnations.items())
                    handle.submit(ElectPreferred(live))
                case 8:
                    handle.submit(Suspect(name, handle.journal.state.incarnations.get(name, "")))
        except InvalidInput:
            world.counts["refused"] += 1
        except LogError as error:
            world.excused(error)
        process.wait(0.1)


def incarnations(process: Process) -> dict[str, str]:
    """Return the incarnations of the nodes as the cluster knows them."""
    return {name: node.incarnation for name, node in process.log.cluster.refresh().nodes.items()}


def _moved(world: ReplicatedWorld) -> tuple[str, ...]:
    nodes = list(world.members())
    world.chance.shuffle(nodes)
    return tuple(nodes[: world.settings.nodes.replicas])


def replace_disk(world: ReplicatedWorld, process: Process, disk: Disk) -> None:
    """Let a node that has lost its disk, or got an old one, join again with an empty one."""
    if disk.node_id not in process.log.cluster.refresh().nodes:
        return
    if disk.restored and not is_replaceable(world, disk):
        repair.repair(process.log.topic(TOPIC), disk.node_id)
        disk.restored = bool(disk.lost & needed(world))
        return
    if disk.restored:
        if not may_lose(world, disk, None, above=False):
            return  # what others have lost is on this disk alone: they are repaired first
        disk.wipe()
    if disk.mounted and disk.incarnation != process.log.cluster.state.nodes[disk.node_id].incarnation:
        disk.in_hand = True  # who renews a node looks that its disk is there: else it begins below the mount point
        try:
            node_admin.renew(process.log, disk.node_id)
        finally:
            disk.in_hand = False
        world.counts["renewed"] += 1
    elif disk.mounted:
        node_admin.update_topics(process.log, disk.node_id)


def follower(process: Process, node: str) -> None:
    """Keep one node up to date, as `pyspark-log node run` does."""
    world, chance = process.world, process.chance
    nodes = world.settings.nodes
    while world.busy:
        if node not in world.members():
            process.wait(0.1)
            continue
        try:
            handle = open_topic(process)
            detector = failure_detector_of(handle, nodes.session_timeout_ms)
            done = Follower(process.log, node).round()
            world.counts["copied"] += done.objects
            if chance.random() < 0.3:
                detector.look(handle)
            if chance.random() < 0.1:
                following.clean_up_node(process.log, node)
            if chance.random() < 0.1:
                world.counts["mended"] += len(faults.scrub(process.log, node).repaired)
        except InvalidOption:
            require(node not in world.members(), f"node {node} is said not to be there")
        except LogError as error:
            world.excused(error)
        process.wait(0.05)


def put_right(world: ReplicatedWorld, process: Process, handle: TopicHandle, rounds: int) -> bool:
    """Bring all nodes back and let followers and maintenance go on until nothing is left to do."""
    nodes = world.settings.nodes
    for _ in range(rounds):
        process.log.open(create=False)
        for each in world.members():
            if process.log.cluster.state.nodes[each].fenced:
                node_admin.set_fenced(process.log, each, fenced=False)
        moves.settle(world, process)
        for disk in world.members().values():
            replace_disk(world, process, disk)
        process.log.open(create=False)
        handle.refresh()
        repair.repair(handle)
        for name in world.members():
            Follower(process.log, name).round()
        failure_detector_of(handle, nodes.session_timeout_ms).look(handle)
        process.store.wait(2 * nodes.session_timeout_ms / 1000)
        topic_cleanup.clean_up_topic(handle)
        if is_whole(world):
            return True
        give_up_lost(world, handle)
    return False


def give_up_lost(world: ReplicatedWorld, handle: TopicHandle) -> None:
    """Elect leaders where every disk of the ISR is lost: what only they had, which was not committed, is given up."""
    lost = tuple(number for number, each in enumerate(handle.refresh().partitions) if not each.isr)
    if lost:
        handle.submit(ElectLeaders(live(handle), (), lost, unclean=True))
        world.note("operator", "unclean elections by hand")


def is_whole(world: ReplicatedWorld) -> bool:
    """Return whether every replica is in sync and level, and nothing is under way."""
    state = world.state
    return all(
        not state.suspects.keys() & set(each.replicas)
        and each.isr == each.replicas
        and each.leader is not None
        and not (each.adding or each.removing)
        and set(each.log_end_offsets.values()) == {each.log_end} == {each.high_watermark}
        for each in state.partitions
    )
