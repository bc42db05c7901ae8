"""The specifications hold where TLC explores them, and allow what the product writes to its journals, but not more."""

from collections.abc import Iterator
from typing import Any

import pytest

from pyspark_log_coordinator.group import machine as group_machine
from pyspark_log_coordinator.group.offsets import Offset, OffsetsCommitted
from pyspark_log_coordinator.group.state import Group
from pyspark_log_coordinator.journal.history import Step
from pyspark_log_coordinator.model.topic_state import Topic
from pyspark_log_coordinator.replication.election import LeaderElected
from pyspark_log_coordinator.topic import machine as topic_machine
from tests.simulator.run import Result, run
from tests.specification import following, models, recorded, tlc
from tests.specification.following import Journal
from tests.support.plain_log import PlainLog

SEEDS = (1, 6, 3)
OPERATIONS = 1500
MIGRATED = 3


@pytest.fixture(scope="module")
def _tlc() -> None:
    """Skip without TLC."""
    try:
        tlc.require()
    except tlc.Unavailable as missing:
        pytest.skip(str(missing))


@pytest.fixture(scope="module")
def worlds(_tlc: None) -> list[Result]:
    """Return a few simulated worlds."""
    return [run(seed, OPERATIONS) for seed in SEEDS]


@pytest.fixture(scope="module")
def migrated(_tlc: None) -> Result:
    """Return a world whose journals are on three stores, and migrate."""
    return run(MIGRATED, 2 * OPERATIONS)


@pytest.fixture(scope="module")
def journals(worlds: list[Result]) -> list[Journal]:
    """Return those of the worlds."""
    return [each for world in worlds for each in following.journals_of(world)]


@pytest.mark.slow
@pytest.mark.usefixtures("_tlc")
@pytest.mark.parametrize("model", ["segments", "one-store", "registers"])
def test_the_specification_holds_in_small(model: str) -> None:
    ran = models.explore(models.MODELS[model])
    assert ran.violated == ""
    assert ran.states > 200


@pytest.mark.slow
@pytest.mark.usefixtures("_tlc")
@pytest.mark.parametrize("name", ["expire-above-hw", "votes-not-closed"])
def test_a_fault_of_the_specification_is_found(name: str) -> None:
    fault = next(each for each in models.faults() if each.name == name)
    assert models.explore(models.MODELS[fault.model], fault).violated


@pytest.mark.parametrize("fault", models.faults(), ids=lambda each: each.name)
def test_each_fault_is_in_the_specification(fault: Any) -> None:
    assert fault.model in models.MODELS
    assert fault.applied_to((tlc.ROOT / fault.file).read_text())


@pytest.mark.slow
def test_what_simulated_worlds_and_real_logs_write_is_allowed(journals: list[Journal]) -> None:
    log = PlainLog()
    log.create("orders", partitions=2)
    log.append("orders", {0: [b"a", b"b"], 1: [b"c"]})
    log.log.topic("orders").delete_records(0, 1)
    written = [each for each in following.journals_in(log.log) if isinstance(each.steps[0].state, Topic)]
    assert len(written) == 1
    real = recorded.journals()
    assert sum(len(each.steps) for each in real) > 100
    followed = following.follow([*journals, *written, *real])
    assert followed.wrong == []
    assert {"append", "start", "hold", "commit", "join", "begin"} <= set(followed.actions)


@pytest.mark.slow
def test_what_the_rules_forbid_is_not_allowed(journals: list[Journal]) -> None:
    named = {each.name: each for each in [*_forged(journals)]}
    assert set(named) == {"elected", "other state", "committed"}
    wrong = following.follow(named.values()).wrong
    assert len(wrong) == len(named), wrong
    for name, problem in {
        "elected": "only_absent_members_leave",
        "other state": "leader",
        "committed": "a_member_commits_or_there_is_none",
    }.items():
        assert any(each.startswith(name) and problem in each for each in wrong), wrong


@pytest.mark.slow
def test_what_the_stores_of_journals_get_is_allowed(migrated: Result) -> None:
    assert migrated.failure is None
    stores = sorted(following.stores_of(migrated), key=lambda each: len(each[1]["entries"]))[:2]
    followed = following.follow([], stores)
    assert followed.wrong == []
    assert set(followed.actions) == {"claim", "vote", "snapshot", "trim"}
    assert all(trace["entries"][-1]["seen"]["generation"] == 2 for _, trace in stores)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("without", "problem"), [("claim", "the_ballot_is_its_own"), ("snapshot", "a_snapshot_is_there_before")]
)
def test_what_the_rules_of_journals_forbid_is_not_allowed(migrated: Result, without: str, problem: str) -> None:
    name, trace = following.stores_of(migrated)[0]
    for entry in trace["entries"]:
        entry["actions"] = [each for each in entry["actions"] if each["kind"] not in {without, "trim"}]
    (wrong,) = following.follow([], [(name, trace)]).wrong
    assert problem in wrong


def _forged(journals: list[Journal]) -> Iterator[Journal]:
    """Yield journals with a last entry that the product would not write."""
    last = next(step for each in journals for step in each.steps if _is_in_sync(step.state))
    state = last.state
    partition = state.partitions[0]
    other = next(each for each in partition.replicas if each != partition.leader)
    elected = LeaderElected(0, other, partition.leader_epoch + 1, partition.log_end, (other,))
    before = [Step(last.number, [], state, 0)]
    yield Journal("elected", [*before, _after(last, topic_machine, elected)])
    higher = topic_machine.evolve(state, elected)
    yield Journal("other state", [*before, Step(last.number + 1, [], higher, 0)])
    steps = [each for journal in journals for each in journal.steps if isinstance(each.state, Group)]
    last = next(each for each in steps if each.state.members)
    stranger = OffsetsCommitted({"t": {0: Offset(1)}}, "", 0)
    yield Journal("committed", [Step(last.number, [], last.state, 0), _after(last, group_machine, stranger)])


def _is_in_sync(state: Any) -> bool:
    """Return whether the first partition of a topic has rows, several nodes, and all of them in the ISR."""
    if not isinstance(state, Topic) or not state.partitions or state.suspects:
        return False
    partition = state.partitions[0]
    return partition.high_watermark > 0 and 1 < len(partition.replicas) == len(partition.isr)


def _after(step: Step, machine: Any, event: Any) -> Step:
    return Step(step.number + 1, [event], machine.evolve(step.state, event), 0)
