"""A short story of a replicated topic, in which any one call to a store can go wrong.

It creates a cluster of three nodes and a topic, writes with acks=all and acks=1, rolls, copies, expires and deletes
rows, trims the journals, consumes in a group that commits, and elects other leaders. Two processes take turns. What
fails is done again: by the same process after an error, by a new one after a crash. So at the end everything must have
happened once.

The story is deterministic: the n-th call is the same in every run, up to the fault.
"""

import contextlib
import itertools
import logging
import random
import weakref
from collections import OrderedDict
from collections.abc import Callable, Iterator
from unittest import mock

import msgspec

from pyspark_log.reading import failover, fetch
from pyspark_log.reading.fetch import RecentChunks
from pyspark_log_coordinator.audit import verify
from pyspark_log_coordinator.environment import Environment
from pyspark_log_coordinator.group.config import MemberSettings
from pyspark_log_coordinator.group.machine import AlterGroupConfig
from pyspark_log_coordinator.group.offsets import Offset
from pyspark_log_coordinator.log import bootstrap, node_admin
from pyspark_log_coordinator.log.log import Log
from pyspark_log_coordinator.maintenance.follower import Follower
from pyspark_log_coordinator.membership.group_member import GroupMember
from pyspark_log_coordinator.membership.session import Session
from pyspark_log_coordinator.membership.shared_partitions import SharedPartitions
from pyspark_log_coordinator.model.batch import Acks
from pyspark_log_coordinator.replication.election import ElectPreferred
from pyspark_log_coordinator.retry import RetryPolicy
from pyspark_log_coordinator.segments.retention import DeleteRecords
from pyspark_log_coordinator.sync.failure_detector import failure_detector_of
from pyspark_log_coordinator.sync.replica_file import live
from pyspark_log_coordinator.topic.machine import AlterConfig
from pyspark_log_storage.errors import LogError, LogMoved
from pyspark_log_storage.layout import MARKER
from pyspark_log_storage.parquet import row_group
from pyspark_log_storage.stores.store import Store
from tests.simulator import lanes
from tests.support.coordinator.members import Topics
from tests.support.coordinator.several_nodes import one_after_another
from tests.support.coordinator.small_topic import (
    AT_ONCE,
    PARTITIONS,
    TOPIC,
    TopicClient,
    make_constants_small,
    rows_of_all,
)
from tests.support.countdown import CHANGES
from tests.support.faulty_store import LIES, Fault, FaultyStore, Killed
from tests.support.memory_store import MemoryStore

ON_THE_ROOT = ("/root", "/disk/1", "/disk/2")
ON_THREE_STORES = ("/disk/a", "/disk/b", "/disk/c")
PRODUCER = "p"
NAMELESS = "x"
"""What the rows begin with of a batch that is no producer's, and so is not written again if it fails."""
GROUP = "g"
CONFIG = msgspec.structs.replace(AT_ONCE, min_insync_replicas=2)
ATTEMPTS = 3
"""Of a step in which something goes wrong once."""
SETTLED_SECONDS = 600
"""Simulated seconds after which a member must have its partitions, also if another one has died."""


class Call(msgspec.Struct, frozen=True):
    """A call to a store."""

    step: str
    url: str
    call: str
    key: str

    def faults(self) -> tuple[Fault, ...]:
        """Return the faults that can happen here and differ.

        If a call changes nothing, it is the same whether it is done before its answer is lost, and a process that is
        killed there was killed after the change before.
        """
        if self.call in CHANGES:
            return (Fault.UNAVAILABLE, Fault.LOST_ANSWER, Fault.KILL_BEFORE, Fault.KILL_AFTER)
        if self.call == "list":
            return (Fault.UNAVAILABLE, Fault.LOST_ANSWER)
        return (Fault.UNAVAILABLE, Fault.MISSING_MARKER) if self.key == MARKER else (Fault.UNAVAILABLE,)


class Process:
    """A process: what it knows of the log is lost when it is killed."""

    def __init__(self, story: "Story", number: int) -> None:
        self.environment = story.environment(number)
        roots = [story.open(url) for url in story.roots]
        self.log = Log(roots, self.environment, open_node=story.open, probe=one_after_another)
        self._story = story
        self._client: TopicClient | None = None
        self.member: GroupMember | None = None
        self.reader = Topics({TOPIC: PARTITIONS})

    @property
    def client(self) -> TopicClient:
        """The log, open."""
        if self._client is None:
            self._client = TopicClient(self.log)
        return self._client

    def found(self) -> None:
        """Create the cluster with its nodes."""
        if len(self._story.roots) > 1:
            bootstrap.mark([self._story.open(url) for url in self._story.roots], self.environment)
        log = self.client.log
        for url in self._story.urls[len(log.cluster.state.nodes) :]:
            node_admin.join(log, url)

    def write(self, batch: int, acks: Acks = "all") -> None:
        self.client.write(PRODUCER, batch, RetryPolicy(retries=2), acks=acks)

    def write_nameless(self) -> None:
        self.client.write(NAMELESS, 0, RetryPolicy(retries=2), named=False)

    def follow(self) -> None:
        """Let every node have everything."""
        for name in self.client.log.cluster.state.nodes:
            Follower(self.client.log, name).round()

    def delete_records(self) -> None:
        self.client.handle.submit(DeleteRecords(0, 3))

    def expire(self) -> None:
        """Delete the rows that are in segments, by their age."""
        self.client.handle.submit(AlterConfig({"retention.ms": "1"}))
        self.client.clean_up_topic()

    def fence(self) -> None:
        """Take the leader of the first partition out, and let the failure detector elect others."""
        node_admin.set_fenced(self.client.log, self._story.leader, fenced=True)
        failure_detector_of(self.client.handle).look(self.client.handle)
        assert self.client.handle.journal.state.partitions[0].leader not in {None, self._story.leader}

    def unfence(self) -> None:
        node_admin.set_fenced(self.client.log, self._story.leader, fenced=False)
        self.follow()

    def elect_preferred(self) -> None:
        handle = self.client.handle
        handle.log.probe_nodes()
        handle.submit(ElectPreferred(live(handle)))

    def create_group(self) -> None:
        """Create a group that does not wait for more members."""
        group = self.client.log.group(GROUP, create=True)
        group.submit(AlterGroupConfig({"group.initial.rebalance.delay.ms": "0"}))

    def join(self) -> None:
        """Become a member of the group, and have all partitions."""
        if self.member is None:
            session = Session(self.client.log, GROUP, MemberSettings(heartbeat_interval_ms=3000))
            self.member = self.reader.member = GroupMember(session, SharedPartitions(("range",), self.reader))
        begun = self.environment.monotonic()
        while not (self.member.is_working and len(self.reader.positions) == PARTITIONS):
            assert self.environment.monotonic() < begun + SETTLED_SECONDS, self.member.session.group
            self.member.poll()
            self.environment.sleep(max(0.001, self.member.pause()))

    def consume(self) -> None:
        """Read all rows from the committed offsets on, and commit."""
        story = self._story
        self.join()
        offsets = {}
        for partition, position in sorted(self.reader.positions.items()):
            number = partition.partition
            assert position in {story.committed[number], story.tried.get(number)}
            begin, values = self.client.read(number)
            story.hold(number, begin, values, self.client.batches(PRODUCER))
            offsets[number] = begin + len(values)
        story.tried = dict(offsets)
        assert self.member is not None
        self.member.commit({TOPIC: {number: Offset(offset) for number, offset in offsets.items()}})
        story.committed = offsets
        for partition in self.reader.positions:
            self.reader.positions[partition] = offsets[partition.partition]

    def delete_another_topic(self) -> None:
        """Create a topic and delete it."""
        log = self.client.log
        log.ensure_topic("other", 1)
        log.delete_topic("other")

    def clean_up(self) -> None:
        """Do all maintenance that is due."""
        self.client.maintain()
        self.client.clean_up_topic()
        self.client.clean_up_cluster()


class Story:
    """One run. `broken` is the number of the call that goes wrong."""

    def __init__(self, urls: tuple[str, ...], broken: int = -1, fault: Fault | None = None) -> None:
        self.urls = urls
        self.roots = urls if urls == ON_THREE_STORES else urls[:1]
        self.broken, self.fault = broken, fault
        self.broken_promise = fault in LIES
        """Whether a store has damaged something without saying so: the rows are right, and the audit may find it."""
        self.calls: list[Call] = []
        self.step = ""
        self.errors: list[LogError] = []
        self.leader = "0"
        self.committed: dict[int, int] = dict.fromkeys(range(PARTITIONS), 0)
        """The offsets whose commit was acknowledged."""
        self.tried: dict[int, int] = {}
        """Those that somebody tried to commit last."""
        self.nameless: list[bool] = []
        """Whether the batch that is no producer's was acknowledged, and whether each process finds its rows."""
        self.batches = 0
        """How many were acknowledged."""
        self.inner = {url: MemoryStore(url) for url in urls}
        self._now, self._waited = itertools.count(1_700_000_000_000), 0.0
        self._numbers = itertools.count()
        self._processes: dict[str, Process] = {}

    def open(self, url: str) -> Store:
        """Return a connection to a store, whose calls may go wrong."""

        def at(call: str, key: str) -> Fault | None:
            self.calls.append(Call(self.step, url, call, key))
            return self.fault if len(self.calls) - 1 == self.broken else None

        return FaultyStore(self.inner[url], at)

    def environment(self, number: int) -> Environment:
        """Return the environment of a process, with a clock that all share."""
        chance = random.Random(number)

        def sleep(seconds: float) -> None:
            self._waited += seconds

        return Environment(
            now_ms=lambda: next(self._now) + int(self._waited * 1000),
            monotonic=lambda: self._waited,
            sleep=sleep,
            uniform=lambda _, high: high,
            nonce=lambda: f"{chance.getrandbits(128):032x}",
            store_threads=lambda purpose: lanes.threads(purpose, chance),
        )

    def run(self) -> None:
        """Let everything happen. Raises `AssertionError` if something that failed once cannot be done again."""
        self.do("found", Process.found)
        self.do("create", lambda process: process.client.create(CONFIG))
        self.do("create the group", Process.create_group)
        self.write(4)
        self.do("maintain", Process.clean_up, "second")
        self.do("consume", Process.consume, "second")
        self.write(2, "1")
        self.do("follow", Process.follow, "second")
        self.do("delete records", Process.delete_records)
        self.do("delete a topic", Process.delete_another_topic, "second")
        self.do("fence", Process.fence, "second")
        self.write(3)
        self.do("unfence", Process.unfence, "second")
        self.do("elect preferred", Process.elect_preferred)
        self.do("expire", Process.expire, "second")
        self.do("keep all", lambda process: process.client.handle.submit(AlterConfig({"retention.ms": "-1"})))
        self.do_once("write nameless", Process.write_nameless)
        self.write(2)
        self.do("consume again", Process.consume, "second")
        self.do("clean up", Process.clean_up)

    def write(self, count: int, acks: Acks = "all") -> None:
        """Write some batches of the one producer."""
        for _ in range(count):
            batch = self.batches
            self.do(f"write {batch}", lambda process, batch=batch: process.write(batch, acks))
            self.batches += 1

    def do(self, step: str, act: Callable[[Process], object], name: str = "first") -> None:
        """Do a step, again if it fails; by a new process if the process is killed."""
        self.step = step
        for attempt in itertools.count(1):
            process = self._processes.get(name)
            if process is None:
                process = self._processes[name] = Process(self, next(self._numbers))
            try:
                act(process)
            except LogError as error:
                self.errors.append(error)
                if isinstance(error, LogMoved):
                    del self._processes[name]  # who gets it starts again
                if attempt == ATTEMPTS:
                    raise
            except Killed:
                del self._processes[name]
            else:
                return

    def do_once(self, step: str, act: Callable[[Process], object], name: str = "first") -> None:
        """Do a step, and do not repeat it."""
        self.step = step
        try:
            act(self._processes[name])
        except LogError as error:
            self.errors.append(error)
        except Killed:
            del self._processes[name]
        else:
            self.nameless.append(True)

    def hold(self, number: int, begin: int, values: list[bytes], batches: int) -> None:
        """Hold the rows of a partition against those that were written: all of them once, in their order."""
        ours = [value for value in values if not value.startswith(f"{NAMELESS}/".encode())]
        assert ours == rows_of_all(PRODUCER, batches)[number][begin:], f"partition {number} from {begin} on"
        others = [value for value in values if value.startswith(f"{NAMELESS}/".encode())]
        assert others in ([], rows_of_all(NAMELESS, 1)[number])
        if self.step == "check":
            self.nameless.append(bool(others))

    def committed_in(self, process: Process) -> dict[int, int | None]:
        """Return the committed offsets of the group."""
        group = process.log.group(GROUP).journal.state
        committed = {number: group.committed(TOPIC, number) for number in range(PARTITIONS)}
        return {number: found and found.offset for number, found in committed.items()}

    def check(self) -> None:
        """Hold the log against what was acknowledged, as the processes see it, and as a new one does."""
        self.step, self.fault = "check", None
        new = Process(self, next(self._numbers))
        for process in (*self._processes.values(), new):
            client = process.client
            assert client.batches(PRODUCER) == self.batches
            for number in range(PARTITIONS):
                begin, values = client.read(number)
                self.hold(number, begin, values, self.batches)
                assert values, f"partition {number}: all rows are gone"
            assert self.committed_in(process) == self.committed
        assert len(set(self.nameless)) == 1, "a batch is there in part, or was acknowledged and is not there"
        if self.broken_promise:
            return
        new.follow()
        for report in (new.client.report(), verify.verify_cluster(new.log)):
            assert report.sound, report.findings
        for each in new.client.handle.journal.state.partitions:
            assert each.high_watermark == each.log_end
            assert sorted(each.isr) == sorted(each.replicas), f"{each.isr} is the ISR of {each.replicas}"


@contextlib.contextmanager
def told() -> Iterator[None]:
    """Make the product small and deterministic in this process, while a story runs."""
    reads: weakref.WeakKeyDictionary[Store, lanes.InlineReads] = weakref.WeakKeyDictionary()

    def lane_of(store: Store) -> lanes.InlineReads:
        return reads.setdefault(store, lanes.InlineReads(lambda: 0.0, 0.0))

    with contextlib.ExitStack() as stack:
        make_constants_small(lambda *changed: stack.enter_context(mock.patch.object(*changed)))
        stack.enter_context(mock.patch.object(failover, "lane_of", lane_of))
        stack.enter_context(mock.patch.object(fetch, "_recent", RecentChunks()))
        stack.enter_context(mock.patch.object(row_group, "_footers", OrderedDict()))
        stack.enter_context(mock.patch.object(logging.getLogger("pyspark_log"), "disabled", True))
        yield


def tell(urls: tuple[str, ...], broken: int = -1, fault: Fault | None = None) -> Story:
    """Tell the story, with a fault at one call, and check what is left; return it."""
    story = Story(urls, broken, fault)
    with told():
        try:
            story.run()
            story.check()
        except BaseException as error:
            at = story.calls[broken] if 0 <= broken < len(story.calls) else None
            error.add_note(
                f"call {broken}: {fault} at {at}; in the step {story.step!r}; errors until then: {story.errors}"
            )
            raise
    return story
