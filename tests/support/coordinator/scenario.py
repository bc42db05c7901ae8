"""Plays the stories in tests/scenarios: one command on each line, with its expected outcome after `->`.

    # ...                          a comment

A topic for the rules alone, without store, clock or data:

    topic NAME [partitions=N] [replicas=A,B,...] [min.insync=N] [mode=quorum] [unclean]
                                   begins a topic, every partition on all replicas, of which the first leads

Or topics of a cluster on a store in memory, numbered as they are created:

    cluster                        begins an empty cluster
    create NAME [partitions=N]     -> incarnation N | refused ERROR
    delete NAME [cut]              -> done | refused ERROR      cut: the process dies between the two entries
    open NAME                      -> incarnation N | refused ERROR    the topic that the following lines are about

Commands about the topic:

    write BATCH [query=Q] [run=R] [app=ID] [take-over] [acks=all|1|0] [TASK | TASK ...]
                                   -> p0 FIRST..LAST, p1 ... | no change | refused ERROR
        TASK is the file of one task: pN=ROWS for each chunk, and on=A,B,... for the nodes that hold it (all by
        default). BATCH is a number, or none for a write without a producer
    hw                             -> p0=N p1=N ...
    isr                            -> p0=A,B p1=...
    read pN                        -> the batch that each row below the high watermark came from, or nothing

Commands about its replicas are in `replica_scenario`. A story that begins with `group` is about a consumer group, and
all its commands are in `group_scenario`. Unknown words and wrong outcomes fail the story.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from pyspark_log_coordinator.log.log import Log, TopicHandle
from pyspark_log_coordinator.model.batch import SequencedFile
from pyspark_log_coordinator.model.partition import Holder
from pyspark_log_coordinator.model.topic_state import Topic
from pyspark_log_coordinator.topic import machine as topic
from pyspark_log_coordinator.topic.machine import DeleteTopic
from pyspark_log_coordinator.topic.sequencing import CommitBatch
from pyspark_log_storage.errors import LogError
from pyspark_log_storage.layout import born_name
from tests.support.coordinator import replica_scenario, topics
from tests.support.coordinator.fake_environment import fake_environment
from tests.support.coordinator.group_scenario import GroupStage
from tests.support.coordinator.scenario_words import StoryError, partition_number, settings, split
from tests.support.memory_store import MemoryStore


def play(path: Path) -> None:
    """Play a story. Raises `StoryError`, which names the line."""
    stage = Stage()
    for number, line in enumerate(path.read_text().splitlines(), 1):
        text, _, expected = (part.strip() for part in line.partition("#")[0].partition("->"))
        if not text:
            continue
        try:
            outcome = stage.act(text.split())
        except (StoryError, ValueError, LookupError) as error:
            raise StoryError(f"{path.name}:{number}: {line.strip()}\n    {error}") from error
        if outcome != expected:
            raise StoryError(f"{path.name}:{number}: {line.strip()}\n    it came out as: {outcome}")


class HandMade:
    """A topic that is nothing but the machine's state."""

    def __init__(self, state: Topic) -> None:
        self.state = state

    def submit(self, command: topic.Command) -> list[Any]:
        """Carry the command out, and return the events."""
        events = topic.decide(self.state, command, 0)
        for event in events:
            self.state = topic.evolve(self.state, event)
        return events


class OnTheStore:
    """A topic of a cluster, as one process holds it."""

    def __init__(self, handle: TopicHandle) -> None:
        self._handle = handle

    @property
    def state(self) -> Topic:
        return self._handle.journal.state

    def submit(self, command: topic.Command) -> list[Any]:
        """Carry the command out, and return the events."""
        return self._handle.submit(command).events


class Stage:
    """Where a story plays: at most one cluster, and the topic that it is about just now."""

    def __init__(self) -> None:
        self._topic: HandMade | OnTheStore | None = None
        self._log: Log | None = None
        self._topic_ids: list[str] = []
        self._files = 0
        self._commands: dict[str, Callable[[list[str]], str]] = {
            "topic": self._begin_topic,
            "cluster": self._begin_cluster,
            "group": self._begin_group,
            "create": self._create,
            "delete": self._delete,
            "open": self._open,
            "write": self._write,
            "hw": self._high_watermarks,
            "isr": self._isrs,
            "read": self._read,
        } | replica_scenario.commands(lambda: self._here)

    def act(self, words: list[str]) -> str:
        """Carry out one line, and return its outcome, empty for a command that has none."""
        verb, *rest = words
        if verb not in self._commands:
            raise StoryError(f"unknown command {verb!r}; there are {', '.join(self._commands)}")
        try:
            return self._commands[verb](rest)
        except LogError as error:
            return f"refused {type(error).__name__}"

    def _begin_topic(self, words: list[str]) -> str:
        _, *rest = words
        given = settings(rest, "partitions", "replicas", "min.insync", "mode", flags=("unclean",))
        state = topics.started(
            int(given.get("partitions", "1")),
            given.get("replicas", "A").split(","),
            int(given.get("min.insync", "1")),
            replication_mode=given.get("mode", "isr"),
            unclean_leader_election_enable="unclean" in given,
        )
        self._topic = HandMade(state)
        return ""

    def _begin_cluster(self, words: list[str]) -> str:
        settings(words)
        self._log = Log(MemoryStore(), fake_environment())
        self._log.open(create=True)
        return ""

    def _begin_group(self, words: list[str]) -> str:
        self._commands = GroupStage(words).commands | {"group": self._begin_group}
        return ""

    def _create(self, words: list[str]) -> str:
        name, *rest = words
        given = settings(rest, "partitions")
        handle = self._cluster.create_topic(name, int(given.get("partitions", "1")))
        self._topic_ids.append(handle.topic_id)
        return self._incarnation(handle)

    def _delete(self, words: list[str]) -> str:
        name, *rest = words
        if rest == ["cut"]:
            self._cluster.topic(name).submit(DeleteTopic())
        else:
            settings(rest)
            self._cluster.delete_topic(name)
        return "done"

    def _open(self, words: list[str]) -> str:
        (name,) = words
        fresh = Log(self._cluster.store, fake_environment())
        fresh.open(create=False)
        handle = fresh.topic(name)
        self._topic = OnTheStore(handle)
        return self._incarnation(handle)

    def _write(self, words: list[str]) -> str:
        batch, *rest = words
        tasks = split(rest, "|")
        given = settings([word for word in tasks[0] if not of_a_task(word)], *WRITER, flags=("take-over",))
        tasks[0] = [word for word in tasks[0] if of_a_task(word)]
        claim = None
        if batch != "none":
            claim = topics.claim(
                int(batch),
                run=given.get("run", "run"),
                query=given.get("query", "query"),
                app=given.get("app", ""),
                take_over="take-over" in given,
            )
        acks = given.get("acks", "all")
        if acks not in ("all", "1", "0"):
            raise StoryError(f"there is no acks={acks}")
        before = self._here.state.partitions
        files = tuple(self._file(batch, task) for task in tasks)
        if not self._here.submit(CommitBatch(claim, files, acks)):  # type: ignore[arg-type]
            return "no change"
        ends = zip(before, self._here.state.partitions, strict=True)
        return ", ".join(
            f"p{index} {old.log_end}..{new.log_end - 1}"
            for index, (old, new) in enumerate(ends)
            if new.log_end > old.log_end
        )

    def _file(self, batch: str, words: list[str]) -> SequencedFile:
        """Return a task's file, whose name has its batch so that `read` can tell."""
        incarnations = self._here.state.incarnations
        nodes, rows = list(incarnations), []
        for word in words:
            name, separator, value = word.partition("=")
            if name == "on" and separator:
                nodes = value.split(",")
            elif of_a_task(word):
                rows.append((partition_number(name), int(value)))
            else:
                raise StoryError(f"unknown word {word!r} in a task")
        self._files += 1
        holders = tuple(Holder(node, incarnations[node]) for node in nodes)
        return SequencedFile(born_name(0, f"{batch}x{self._files}"), holders, topics.file(rows).chunks)

    def _high_watermarks(self, words: list[str]) -> str:
        settings(words)
        each = enumerate(self._here.state.partitions)
        return " ".join(f"p{index}={partition.high_watermark}" for index, partition in each)

    def _isrs(self, words: list[str]) -> str:
        settings(words)
        each = enumerate(self._here.state.partitions)
        return " ".join(f"p{index}={','.join(partition.isr)}" for index, partition in each)

    def _read(self, words: list[str]) -> str:
        (name,) = words
        state = self._here.state
        partition = state.partitions[partition_number(name)]
        rows: list[str] = []
        for chunk in partition.chunks_between(partition.log_start, partition.high_watermark):
            rows += [state.file(chunk.file).name.removeprefix(born_name(0, "")).rpartition("x")[0]] * chunk.rows
        return " ".join(rows) or "nothing"

    def _incarnation(self, handle: TopicHandle) -> str:
        return f"incarnation {self._topic_ids.index(handle.topic_id) + 1}"

    @property
    def _here(self) -> HandMade | OnTheStore:
        if self._topic is None:
            raise StoryError("no topic yet: begin with 'topic' or 'open'")
        return self._topic

    @property
    def _cluster(self) -> Log:
        if self._log is None:
            raise StoryError("no cluster yet: begin with 'cluster'")
        return self._log


WRITER = ("query", "run", "app", "acks")


def of_a_task(word: str) -> bool:
    """Return whether a word says what a task wrote: pN=ROWS or on=NODES."""
    name, separator, _ = word.partition("=")
    return bool(separator) and (name == "on" or (name[:1] == "p" and name[1:].isdecimal()))
