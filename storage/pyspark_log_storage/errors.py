"""All errors that pyspark_log raises on purpose. Bugs are asserted instead.

    LogError
    |-- InvalidInput                  the caller's options, names or rows are wrong: nothing was written
    |   |-- InvalidOption             an option: .option
    |   |-- InvalidName               the name of a topic, group or node: .name
    |   |-- InvalidRecord             a row or a column of the frame
    |   `-- InconsistentProtocol      a member's protocols are not those of the group that it joins
    |-- SourceNotFound                Spark does not find the format "pyspark_log"
    |-- NoCluster                     there is no cluster at the address, or another one than a checkpoint knows
    |-- CopiedLog                     the log is at another address than it has recorded: .recorded
    |-- LogMoved                      the journals were moved to other nodes: start the query or the consumer again
    |-- UnknownTopic                  .topic
    |-- TopicExists                   .topic
    |-- DataLoss                      rows that a reader asked for do not exist any more (failOnDataLoss)
    |-- ProducerFenced                another query or a newer run owns the producer: .producer
    |-- BatchMismatch                 a replayed batch differs, or its number went backwards: .producer, .batch
    |-- GroupError                    a group refused a command: .group
    |   |-- UnknownGroup              the group does not exist, or was deleted
    |   |-- GroupNotEmpty             the command needs a group without members
    |   |-- RewindPending             a commit does not know the newest rewind: follow it first
    |   `-- MemberError               .member
    |       |-- UnknownMember         the member was removed: join again, as a new member
    |       |-- IllegalGeneration     the work was assigned anew: rejoin; .generation
    |       |-- FencedInstance        another process has the member's group.instance.id: stop
    |       `-- RebalanceInProgress retriable  no generation is complete: wait for the assignment
    |-- NotEnoughReplicas  retriable  fewer in-sync replicas than min.insync.replicas: nothing was appended
    |   `-- NotEnoughReplicasAfterAppend  retriable  the batch is in the log, but on too few of them
    |-- CorruptObject                 stored bytes are damaged: .object, .detail
    |   `-- OutOfChain                an intact journal entry that does not follow the one before it
    |-- NewerFormat                   written by another version, mostly a newer one: .object, .detail
    |-- StaleFile                     a file waited so long to be sequenced that it may have been deleted
    |-- UnknownVersion                a version of a topic that is no longer kept, or does not exist yet: .version
    |-- BufferExhausted    retriable  the rows of a Producer wait for a store longer than max.block.ms: not sent
    |-- OutcomeUnknown                an entry may have been written or not: look for its effect
    `-- StoreError                    a call to a store failed: .url, .key
        |-- ObjectMissing             there is no such object
        |-- StoreUnavailable retriable    timeouts, I/O errors
        |-- StoreRefused              no permission, wrong credentials or settings: an operator must act
        |   `-- StoreUnwritable       no process can write there: the disk is full, or read-only
        |-- StoreUnfit                the store failed the self-test: it ignores conditions, or tears writes
        `-- NodeMissing               the store is another node, or of another incarnation
            `-- NodeAway retriable    the store has no marker: its disk is not mounted, or was wiped

A class exists only if callers act differently on it. `retriable` says whether the same call may succeed later without
any action. Every message says what to do next.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable


class LogError(Exception):
    """The base class of all errors that pyspark_log raises on purpose."""

    retriable = False

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message

    def __reduce__(self) -> tuple[object, ...]:
        """Pickle the message and the attributes, not the arguments of the constructor (Spark pickles errors)."""
        return _restore, (type(self), self.message, self.__dict__)


def _restore(cls: type[LogError], message: str, facts: dict[str, object]) -> LogError:
    error = cls.__new__(cls, message)
    Exception.__init__(error, message)
    error.__dict__.update(facts)
    return error


class InvalidInput(LogError):
    """An argument of the caller cannot be used. Nothing was written."""


class InvalidOption(InvalidInput):
    def __init__(self, option: str, message: str) -> None:
        super().__init__(message)
        self.option = option


class InvalidName(InvalidInput):
    def __init__(self, name: str, message: str) -> None:
        super().__init__(message)
        self.name = name


class InvalidRecord(InvalidInput):
    """A row or a column cannot be stored."""


class InconsistentProtocol(InvalidInput):
    """A member supports none of the protocols that its group can use, or is of another protocol type."""


class SourceNotFound(LogError):
    """Spark does not find the format "pyspark_log": the Python in which it looks lacks the package."""


class NoCluster(LogError):
    """There is no cluster at the address, or another one than the query's checkpoint knows."""


class CopiedLog(LogError):
    def __init__(self, here: str, recorded: str) -> None:
        super().__init__(
            f"the log at {here} was moved, or is a copy: it has recorded the address {recorded}. If only its disk is "
            "mounted elsewhere, mount it there, or make a symbolic link there that leads here. If its folders were "
            f"moved, and nothing uses {recorded} any more, run `pyspark-log cluster adopt --moved` with the present "
            "addresses. If this is a copy, use the original; for a log of its own, back up the original and restore "
            "that (`pyspark-log backup`, `pyspark-log restore --as-new`)"
        )
        self.recorded = recorded


class LogMoved(LogError):
    def __init__(self, journal: str) -> None:
        super().__init__(
            f"the {journal} has ended: the journals of this log were moved to other nodes. Start the query again, or "
            "make a new Consumer or Worker; a Producer goes on with its next rows. The address may stay the same as "
            "long as one of the former journal nodes can be reached"
        )


class UnknownTopic(LogError):
    def __init__(self, topic: str, message: str) -> None:
        super().__init__(message)
        self.topic = topic


class TopicExists(LogError):
    def __init__(self, topic: str) -> None:
        super().__init__(f"topic {topic!r} already exists; use it, choose another name, or delete it first")
        self.topic = topic


class DataLoss(LogError):
    """Rows that a reader must read have expired, were truncated, or belong to a deleted topic."""


class ProducerFenced(LogError):
    def __init__(self, producer: str, message: str) -> None:
        super().__init__(message)
        self.producer = producer


class BatchMismatch(LogError):
    def __init__(self, producer: str, batch: int, message: str) -> None:
        super().__init__(message)
        self.producer = producer
        self.batch = batch


class GroupError(LogError):
    def __init__(self, group: str, message: str) -> None:
        super().__init__(message)
        self.group = group


class UnknownGroup(GroupError):
    """The group does not exist, or was deleted."""


class GroupNotEmpty(GroupError):
    """The group has members, and the command needs one without."""


class RewindPending(GroupError):
    """A partition was rewound, and the committer has not taken that up: its offset belongs to the time before."""


class MemberError(GroupError):
    def __init__(self, group: str, member: str, message: str) -> None:
        super().__init__(group, message)
        self.member = member


class UnknownMember(MemberError):
    """The member is not in the group, or no longer."""


class IllegalGeneration(MemberError):
    def __init__(self, group: str, member: str, generation: int, message: str) -> None:
        super().__init__(group, member, message)
        self.generation = generation


class FencedInstance(MemberError):
    """Another process joined with the member's `group.instance.id`, and has taken its place."""


class RebalanceInProgress(MemberError):
    retriable = True


class NotEnoughReplicas(LogError):
    retriable = True


class NotEnoughReplicasAfterAppend(NotEnoughReplicas):
    """The batch is in the log, but fewer in-sync replicas have its rows than min.insync.replicas requires."""


class CorruptObject(LogError):
    def __init__(self, obj: str, detail: str) -> None:
        super().__init__(f"{obj} is damaged: {detail}; restore it from a replica or a backup")
        self.object = obj
        self.detail = detail


class OutOfChain(CorruptObject):
    """A journal entry is intact and does not follow the one before it: one of the two is not part of the journal."""


class NewerFormat(LogError):
    """Another version wrote the object: mostly a newer one, but an older one may have had such fields, too."""

    def __init__(self, obj: str, detail: str) -> None:
        super().__init__(
            f"{obj} was written by another version of pyspark_log ({detail}); if that one is newer, upgrade this one, "
            "whose build pyspark-log --version shows; if it is older, use it for this log, and begin a new log with "
            "this one"
        )
        self.object = obj
        self.detail = detail


class StaleFile(LogError):
    """A file waited longer to be sequenced than orphans are kept."""


class UnknownVersion(LogError):
    def __init__(self, version: int, oldest: int, newest: int) -> None:
        super().__init__(f"there is no version {version}: versions {oldest} to {newest} are kept; choose one of these")
        self.version = version


class BufferExhausted(LogError):
    retriable = True


class OutcomeUnknown(LogError):
    """An entry may have been written or not; the caller finds out by looking for its effect."""


class StoreError(LogError):
    def __init__(self, url: str, key: str, message: str) -> None:
        super().__init__(message)
        self.url = url
        self.key = key


class ObjectMissing(StoreError):
    def __init__(self, url: str, key: str, rows: str = "") -> None:
        """`rows` names the rows that are in the object and that a reader needs."""
        message = f"there is no object {key!r} in {url}; was it deleted, or is another path mounted there?"
        if rows:
            message = f"{rows}: {message} Copy it again (pyspark-log verify --repair), or restore it from a backup"
        super().__init__(url, key, message)


class StoreUnavailable(StoreError):
    retriable = True


class StoreRefused(StoreError):
    """The store refused this process: permission, credentials or settings. An operator must act."""


class StoreUnwritable(StoreRefused):
    """No process can write to the store: its disk is full or read-only. A replica on it is out of sync."""


class StoreUnfit(StoreError):
    """The store failed the self-test, so using it could lose data silently."""


class NodeMissing(StoreError):
    """The store is not the expected node: another one is mounted there, or an operator renewed it."""


class NodeAway(NodeMissing):
    retriable = True


def is_node_failure(error: LogError) -> bool:
    """Return whether an error means that a node is unreachable or broken for every client.

    Missing rights and wrong settings are the client's own fault: they must not exclude a healthy node for others.
    """
    if isinstance(error, StoreUnwritable):
        return True
    return isinstance(error, (StoreError, CorruptObject)) and not isinstance(error, StoreRefused)


def main_reason(failures: Iterable[LogError]) -> LogError:
    """Return the error to raise if every store failed: a retriable one if any, because that store may recover."""
    return min(failures, key=lambda error: not error.retriable)
