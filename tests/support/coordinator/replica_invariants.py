"""What must hold in every state of the model of the replicas, and of every entry of its journal."""

from __future__ import annotations

from tests.support.coordinator.replica_disks import Disks, Known, State, words


def acknowledged_rows_stay(state: State, known: Known, disks: Disks, min_insync: int) -> str | None:
    """Require that rows acknowledged with acks=all are kept while one store of the ISR survives."""
    members = [disks[name] for name in known.partition.isr if name in disks]
    # Whoever rebuilds a log does not know how far it was committed.
    end = known.partition.log_end if state.rebuilds else known.partition.high_watermark
    below = {number: offset for offset, (_, number) in enumerate(known.log[:end])}
    for number in (number for number in range(state.produced) if state.acked >> number & 1):
        if number not in below:
            return f"row {number} was acknowledged with acks=all, and is not below the HW"
        row = known.log[below[number]]
        if members and not any(disk.get(below[number]) == row for disk in members):
            return f"row {number} was acknowledged with acks=all, and no store that is left of the ISR has it"
    return None


def committed_rows_stay(state: State, known: Known, disks: Disks, min_insync: int) -> str | None:
    """Hold that what readers may see survives the loss of fewer stores than min.insync.replicas."""
    if sum(node.incarnation + node.wiped for node in state.nodes) >= min_insync:
        return None
    for offset, row in enumerate(known.log[: known.partition.high_watermark]):
        if not any(disk.get(offset) == row for disk in disks.values()):
            return f"row {row[1]} is below the HW, and no store has it"
    return None


def replicas_are_equal(state: State, known: Known, disks: Disks, min_insync: int) -> str | None:
    """Hold that below the HW all replicas hold the same rows at the same offsets."""
    return _differing(known, disks, known.partition.high_watermark)


def the_journal_is_right(state: State, known: Known, disks: Disks, min_insync: int) -> str | None:
    """Hold that every replica has what the journal says that it has."""
    return _differing(known, disks, known.partition.log_end)


def _differing(known: Known, disks: Disks, end: int) -> str | None:
    for name, disk in disks.items():
        reached = known.partition.log_end_offsets[name]
        for offset, row in enumerate(known.log[: min(end, reached)]):
            if disk.get(offset) != row:
                return f"{name} is said to hold row {row[1]} at offset {offset}, and holds {words(disk.rows)}"
    return None


INVARIANTS = {
    "acknowledged rows stay": acknowledged_rows_stay,
    "committed rows stay": committed_rows_stay,
    "replicas are equal": replicas_are_equal,
    "the journal is right": the_journal_is_right,
}


def entry_violation(before: Known, after: Known) -> str | None:
    """Hold an entry against the state before it."""
    old, new = before.partition, after.partition
    if new.high_watermark < old.high_watermark:
        return f"the HW went back from {old.high_watermark} to {new.high_watermark}"
    if new.leader_epoch < old.leader_epoch:
        return f"the leader epoch went back from {old.leader_epoch} to {new.leader_epoch}"
    if after.log[: old.high_watermark] != before.log[: old.high_watermark]:
        return f"the rows below the HW were {words(before.log)} and are {words(after.log)}"
    if [chunk.base_offset for chunk in new.chunks] != list(range(new.log_end)):
        return f"the offsets have a gap or an overlap: {new.chunks}"
    if not new.high_watermark <= new.log_end or len(set(after.log)) != len(after.log):
        return f"the HW {new.high_watermark} is above the log's end, or a row is there twice: {words(after.log)}"
    if new.leader is not None and new.log_end_offsets[new.leader] != new.log_end:
        return f"{new.leader} leads and lacks rows"
    if any(new.log_end_offsets[node] < new.high_watermark for node in new.isr):
        return "a member of the ISR lacks rows below the HW"
    return None
