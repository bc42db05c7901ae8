"""Power failures: a sample of the states that `make powerloss` tries, and the model of a disk behind them."""

import collections
import functools
import itertools
import os
import random
from tempfile import TemporaryDirectory

import pytest

from pyspark_log_storage.errors import LogError
from tests.disk.disk import Call, Disk
from tests.disk.failures import Trial, failures, flushers
from tests.disk.recorder import Recorder
from tests.disk.story import KINDS, DiskStory
from tests.support.coordinator.fault_story import told

SAMPLE = {"one": 8, "root": 3, "journals": 2}
"""After how many calls power fails, of each kind of cluster."""
PLACES = {
    "_flush < _flush",  # the folders above: noticed in `test_store`, when the process that made them was killed
    "_make_root < open_write",
    "_flush < _flush_name",
    "finish < _write",
    "finish < close",
}
"""Where the product flushes a file or a folder."""
ASKS = {"_check_flushes < publish"}
"""Where it only finds out whether folders can be flushed."""


@functools.cache
def story(kind: str) -> DiskStory:
    with TemporaryDirectory() as folder, told():
        found = DiskStory(kind, folder, kill_chance=0.3)
        found.run()
        return found


@pytest.mark.parametrize("kind", KINDS)
def test_what_was_promised_is_kept_in_a_sample_of_the_states(kind, tmp_path):
    calls = random.Random(kind).sample(range(len(story(kind).recorder.calls) + 1), SAMPLE[kind])
    trial = Trial(story(kind), str(tmp_path))
    for failure in failures(story(kind), 0, 1, set(calls)):
        trial.run(failure)
    assert len(trial.distinct) > 2 * SAMPLE[kind]


def test_every_place_that_flushes_is_known():
    assert set(itertools.chain(*(flushers(story(kind)) for kind in KINDS))) == PLACES | ASKS


@pytest.mark.parametrize("without", sorted(PLACES - {"_flush < _flush"}))
def test_without_a_flush_a_promise_is_broken(without, tmp_path):
    """After one of the steps, when all that is not flushed is lost, or in a state near that."""
    ends = {promise.calls for promise in story("one").promises}
    trial = Trial(story("one"), str(tmp_path))
    with pytest.raises((AssertionError, LogError)) as broken:
        collections.deque(map(trial.run, failures(story("one"), 0, 0, ends, without)), maxlen=0)
    assert "power fails" in broken.value.__notes__[0]


def disk_of(*calls: Call) -> Disk:
    disk = Disk()
    for each in calls:
        disk.apply(each)
    return disk


def states_of(*calls: Call) -> set[tuple[str, ...]]:
    """Return the names in each state, with the bytes of files."""
    disk = disk_of(*calls)
    chance = random.Random(0)
    trees = (disk.tree(state, chance) for state in disk.states(chance, 0))
    return {
        tuple(f"{path}={'/' if data is None else data.decode('latin-1')}" for path, data in sorted(tree.items()))
        for tree in trees
    }


ROOT, FILE = 0, 1
WRITTEN = (Call("create", "a"), Call("write", number=FILE, data=b"x"), Call("flush", number=FILE))


def test_a_rename_is_done_or_not():
    other = (
        Call("create", "b"),
        Call("write", number=2, data=b"y"),
        Call("flush", number=2),
        Call("flush", number=ROOT),
    )
    renamed = states_of(*WRITTEN, *other, Call("rename", "b", source="a"))
    assert renamed == {("a=x", "b=y"), ("b=y",), ("a=x", "b=x"), ("b=x",)}


def test_changes_of_names_may_be_kept_in_any_order():
    states = states_of(Call("mkdir", "a"), Call("mkdir", "b"), Call("mkdir", "a/c"))
    assert states == {(), ("a=/",), ("b=/",), ("a=/", "b=/"), ("a=/", "a/c=/"), ("a=/", "a/c=/", "b=/")}


def test_a_change_that_is_not_recorded_is_noticed(tmp_path):
    recorder = Recorder({"disk": str(tmp_path)})
    with recorder.recording():
        os.mkdir(tmp_path / "a")
        recorder.assert_complete()
        (tmp_path / "a" / "b").write_bytes(b"x")  # not by `os.open`
        with pytest.raises(AssertionError, match="not recorded"):
            recorder.assert_complete()
        with pytest.raises(AssertionError, match="does not know"):
            os.truncate(tmp_path / "a" / "b", 0)
