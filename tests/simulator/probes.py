"""Probes: what worlds must come to, because an invariant proves nothing where nothing comes near to breaking it.

Each is a count that worlds keep. A run of `ENOUGH` worlds in which one stays zero fails: then what the seeds choose
(`settings`) has to be weighted anew.
"""

from collections.abc import Mapping

ENOUGH = 140
"""So many worlds, the first ones, come to everything."""
MANY = 1000
"""So many worlds do, wherever they begin."""
WRITERS_AND_READERS = (
    *("batches", "acks=all", "acks=1", "acks=0", "crashes", "zombies", "fenced", "strays", "StaleFile"),
    *("batch reads", "micro-batches read", "driver reads", "rewinds", "rows lost under a reader", "OutcomeUnknown"),
    *("lost of a journal", "cut of a journal", "flipped of a journal"),
)
DISKS = (
    *("silent", "slow", "read-only", "unmounted", "wiped", "restored", "lost file", "flipped", "set back", "renewed"),
    *("copied", "mended", "NodeMissing", "StoreUnwritable", "StoreRefused", "CorruptObject"),
)
REPLICAS = (
    *("isr worlds", "quorum worlds", "NotEnoughReplicas", "NotEnoughReplicasAfterAppend"),
    *("LeaderElected", "leaders deposed as gone", "RowsLost", "unclean elections"),
    *("IsrShrunk", "left an ISR as gone", "left an ISR as lagging", "NodeSuspected", "SuspicionCancelled"),
    *("ReplicasFenced", "ReplicasUnfenced", "ReplicasRenewed", "ReplicasAltered"),
)
MOVES = ("a node added", "NodeRemoved", "taken away", "JournalsMoved", "JournalEnded of shared")
TABLES = ("versions of tables", "rows of tables", "conversions to Parquet")
COMPACTION = (
    *(
        "cleanings",
        "segments cleaned",
        "merges",
        "rewrites",
        "tombstones dropped",
        "keyed swaps refused",
    ),
    *("newest rows read of keyed segments", "newest rows read at a version", "newest rows refused", "policy changes"),
    "lags below the compacted end",
)
GROUPS = (
    *("offset commits", "rewound", "rewinds taken up", "offsets deleted"),
    *("members left", "members died", "members fenced", "members napped"),
    *(f"{name} of shared" for name in ("StaticMemberReplaced", "MembersRemoved", "RebalanceExtended", "WorkAssigned")),
    *("OffsetsCommitted of shared", "UnknownMember of a member"),
)
PROBES = (*WRITERS_AND_READERS, *DISKS, *REPLICAS, *MOVES, *TABLES, *COMPACTION, *GROUPS)


def unreached(counts: Mapping[str, int]) -> list[str]:
    """Return the probes at zero."""
    return [each for each in PROBES if not counts.get(each)]
