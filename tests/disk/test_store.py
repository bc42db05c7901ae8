"""What one store has acknowledged survives a power failure, also if another process was killed before, at any call."""

import functools
import itertools
import random
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from pyspark_log_storage.stores.local import LocalStore
from tests.disk.disk import Disk
from tests.disk.recorder import Recorder, replayed
from tests.support.faulty_store import Killed

pytestmark = pytest.mark.default
KEY, DATA = "a/b/y", b"acknowledged"
FOLDERS = "new/log"
SAMPLES = 30


def write(store: LocalStore) -> None:
    writer = store.open_write(KEY)
    writer.write(DATA)
    writer.close()


def create_again(store: LocalStore) -> None:
    """Create an object in a folder that the store has flushed, and that was removed since."""
    store.create("a/b/z", b"")
    for key in ("a/b/x", "a/b/z"):
        store.delete(key)
    store.remove_folders("a/")
    store.create(KEY, DATA)


ACTS = {
    "create": lambda store: store.create(KEY, DATA),
    "create what may be there": lambda store: store.create(KEY, DATA),
    "create again": create_again,
    "put": lambda store: store.put(KEY, DATA),
    "write": write,
}
FIRST = {"create what may be there": KEY}
"""What the first process creates, if it is not another object in the same folder."""
FOLDERS_ABOVE = {"_flush < _flush_name", "_flush < _flush", "_make_root < open_write"}
NOTICED = {
    "create": {"finish < _write", *FOLDERS_ABOVE},
    "create what may be there": {"finish < _write", *FOLDERS_ABOVE},
    "create again": {"finish < _write", *FOLDERS_ABOVE},
    "put": {"finish < _write", *FOLDERS_ABOVE},
    "write": {"finish < close", *FOLDERS_ABOVE},
}
"""The places that flush something for each call, and without which the object is lost."""


@functools.cache
def recorded(act: str) -> list[Recorder]:
    """Return what two processes do: the first is killed, in each recording at the next of its calls."""
    found = []
    with TemporaryDirectory() as folder:
        for kill_at in itertools.count():
            path = f"{folder}/{kill_at}"
            Path(path).mkdir()
            recorder = Recorder({"disk": path})
            recorder.kill_at = kill_at
            with recorder.recording():
                try:
                    LocalStore(f"{path}/{FOLDERS}").create(FIRST.get(act, "a/b/x"), DATA)
                except Killed:
                    recorder.revive()
                    is_killed = True
                else:
                    is_killed = False
                recorder.kill_at = -1
                ACTS[act](LocalStore(f"{path}/{FOLDERS}"))
            recorder.assert_complete()
            found.append(recorder)
            if not is_killed:
                return found
    raise AssertionError


def contents(recorder: Recorder, without: str = "") -> Iterator[bytes | None]:
    """Yield what is left of the object in the states of the disk when it has been acknowledged."""
    disk = Disk()
    for _, disks in replayed(recorder.calls, ["disk"], without):
        disk = disks["disk"]
    chance = random.Random(0)
    for state in disk.states(chance, SAMPLES):
        yield disk.tree(state, chance).get(f"{FOLDERS}/{KEY}")


@pytest.mark.parametrize("act", ACTS)
def test_an_object_that_was_acknowledged_is_whole_in_every_state(act):
    assert len(recorded(act)) > 15, "the first process is killed at fewer calls than it makes"
    for number, recorder in enumerate(recorded(act)):
        assert set(contents(recorder)) == {DATA}, f"if the first process is killed at call {number}"


@pytest.mark.parametrize("act", ACTS)
def test_without_any_of_its_flushes_it_is_lost(act):
    places = {call.place for recorder in recorded(act) for _, call in recorder.calls if call.kind == "flush"}
    lost = {place for place in places if any(set(contents(each, place)) != {DATA} for each in recorded(act))}
    assert lost == NOTICED[act]
