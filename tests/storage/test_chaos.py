"""A store with faults does wrong what its address says, as often as it says, and nothing else."""

import os
import signal

import pytest

from pyspark_log_storage import layout
from pyspark_log_storage.errors import InvalidOption, ObjectMissing, StoreError, StoreUnavailable, StoreUnfit
from pyspark_log_storage.stores.addresses import absolute_url, inner_url, open_store
from pyspark_log_storage.stores.chaos import ChaosStore
from pyspark_log_storage.stores.faults import Fault, RandomFaults, parse_options
from pyspark_log_storage.stores.self_test import self_test
from tests.support.memory_store import MemoryStore

LIES = ("stale_lists", "ignored_conditions", "torn_writes", "bit_rot", "bad_reads")
WITHIN_THE_PROMISE = ("unavailable", "slow_down", "lost_answers", "missing_markers")


def chaotic(inner=None, sleep=bool, **options):
    """A store in memory with faults."""
    text = "&".join(f"{name}={value}" for name, value in ({"seed": 7} | options).items())
    return ChaosStore(inner or MemoryStore(), RandomFaults(parse_options(text)), sleep=sleep)


# Addresses


@pytest.mark.parametrize(
    ("given_as", "meant"),
    [
        ("CHAOS+FILE:///data/log/?seed=7&bit_rot=0.5", "chaos+file:///data/log?seed=7&bit_rot=0.5"),
        ("chaos+/data/a%b?c d?seed=7", "chaos+file:///data/a%25b%3Fc%20d?seed=7"),
        ("chaos+/data/log", "chaos+file:///data/log"),
        ("chaos+s3a://bucket/log?seed=7", "chaos+s3://bucket/log?seed=7"),
    ],
)
def test_the_address_of_a_store_with_faults_is_canonical(given_as, meant):
    assert absolute_url(given_as) == absolute_url(meant) == meant


def test_the_address_opens_the_store_that_it_names(tmp_path):
    folder = tmp_path / "a?b %"
    url = absolute_url(f"chaos+{folder}?seed=1")
    store = open_store(url)
    store.put("selftest/key", b"bytes")
    assert (folder / "selftest" / "key").read_bytes() == b"bytes"
    assert store.url == url
    assert inner_url(url) == str(folder) == inner_url(str(folder))
    (tmp_path / "file").touch()
    url = absolute_url(f"chaos+{tmp_path}/file/below?seed=1")
    for call in ("read", "size", "open_write"):
        with pytest.raises(StoreError) as failed:
            getattr(open_store(url), call)("selftest/x")
        assert failed.value.url == url, "whoever copies between two knows which of them failed"


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ("lost=0.1", "there is no option 'lost'; choose from seed, delay_ms,"),
        ("kills=2", "kills is 2; choose a probability from 0 to 1"),
        ("bit_rot=nan", "choose a probability"),
        ("seed=x", "Expected `int"),
        ("seed=1&seed=2", "option 'seed' is given twice"),
        ("delay_ms=-1", "choose 0 to 3600000 milliseconds"),
        ("seed", "is not a list of options like"),
    ],
)
def test_wrong_options_are_refused_when_the_store_is_opened(options, reason):
    with pytest.raises(InvalidOption, match=reason) as refused:
        open_store(f"chaos+file:///data/log?{options}")
    assert refused.value.option == "path"


# Faults


def outcomes(store, calls=200):
    """What a process meets that creates, reads, lists and deletes."""
    found = []
    for number in range(calls):
        key = f"f/{number % 10}"
        steps = [(store.create, key, b"some bytes"), (store.read, key), (store.delete, key)]
        for call, *given in [*steps[: 3 if number % 7 == 0 else 2], (lambda: list(store.list("f/")),)]:
            try:
                found.append(call(*given))
            except StoreError as error:
                found.append(type(error))
    return found


MANY = dict.fromkeys((*LIES, *WITHIN_THE_PROMISE), 0.1)


def test_the_same_seed_and_calls_meet_the_same_faults_as_often_as_the_address_says():
    assert outcomes(chaotic(**MANY)) == outcomes(chaotic(**MANY))
    assert outcomes(chaotic(**MANY)) != outcomes(chaotic(**MANY | {"seed": 8}))
    assert outcomes(chaotic()) == outcomes(MemoryStore()), "without faults it is the store that it wraps"
    failed = sum(each is StoreUnavailable for each in outcomes(chaotic(lost_answers=0.1), 1000))
    assert 0.07 < failed / 3143 < 0.13
    slept = []
    outcomes(chaotic(sleep=slept.append, delay_ms=50), 100)
    assert len(set(slept)) > 100
    assert 0.04 < max(slept) <= 0.05
    marked = chaotic(missing_markers=1)
    for key in (layout.MARKER, "other"):
        marked.create(key, b"x")
    with pytest.raises(ObjectMissing):
        marked.read(layout.MARKER)
    assert marked.read("other") == b"x", "only the marker seems to be missing"


@pytest.mark.parametrize(
    ("option", "why"), [("unavailable", "on purpose"), ("slow_down", "503 SlowDown: please reduce your request rate")]
)
def test_a_call_that_is_not_answered_does_nothing(option, why):
    inner = MemoryStore()
    store = chaotic(inner, **{option: 1})
    for call in (
        lambda: store.create("a", b"x"),
        lambda: store.create_unflushed("a", b"x"),
        lambda: store.put("a", b"x"),
        lambda: store.open_write("a"),
        lambda: store.read("a"),
        lambda: store.size("a"),
        lambda: store.exists("a"),
        lambda: store.delete("a"),
        lambda: list(store.list("")),
        lambda: list(store.folders("a/")),
        lambda: store.remove_folders("a/"),
        store.delete_unfinished,
    ):
        with pytest.raises(StoreUnavailable, match=why):
            call()
    assert list(inner.list("")) == []


def test_a_call_whose_answer_is_lost_is_done():
    inner = MemoryStore()
    store = chaotic(inner, lost_answers=1)
    for number, call in enumerate((store.create, store.create_unflushed, store.put)):
        with pytest.raises(StoreUnavailable, match="the answer was lost"):
            call(f"key-{number}", b"x")
    assert list(inner.list("")) == ["key-0", "key-1", "key-2"]
    with pytest.raises(StoreUnavailable):
        store.delete("key-0")
    assert list(inner.list("")) == ["key-1", "key-2"]


def test_a_list_whose_answer_is_lost_ends_in_the_middle():
    store = chaotic(lost_answers=0)
    for key in "abcd":
        store.create(key, b"")
    keys = chaotic(store, lost_answers=1).list("")
    assert [next(keys), next(keys)] == ["a", "b"]
    with pytest.raises(StoreUnavailable):
        next(keys)


class At:
    """Makes one fault at one call by its name."""

    def __init__(self, call, fault):
        self.call, self.fault = call, fault

    def at(self, call, key):
        return self.fault if call == self.call else None

    def delay(self):
        return 0.0

    def below(self, count):
        return count // 2


def write(store, key="a", **how):
    writer = store.open_write(key, **how)
    writer.write(b"abc", b"def")
    writer.write(b"ghi")
    writer.close()


@pytest.mark.parametrize("call", ["open", "write", "close"])
@pytest.mark.parametrize("fault", [Fault.UNAVAILABLE, Fault.LOST_ANSWER])
def test_a_large_object_fails_at_each_of_its_calls(call, fault):
    inner = MemoryStore()
    with pytest.raises(StoreUnavailable):
        write(ChaosStore(inner, At(call, fault)))
    is_there = call == "close" and fault is Fault.LOST_ANSWER
    assert list(inner.list("")) == (["a"] if is_there else [])


@pytest.mark.parametrize(("fault", "is_done"), [(Fault.KILL_BEFORE, False), (Fault.KILL_AFTER, True)])
def test_the_process_is_killed_at_a_call(monkeypatch, fault, is_done):
    """With some seeds before the call is done, with others after it."""
    found = {RandomFaults(parse_options(f"kills=1&seed={seed}")).at("put", "selftest/a") for seed in range(100)}
    assert found == {Fault.KILL_BEFORE, Fault.KILL_AFTER}
    inner, signals = MemoryStore(), []
    monkeypatch.setattr(os, "kill", lambda _, number: signals.append((number, list(inner.list("")))))
    ChaosStore(inner, At("put", fault)).put("a", b"")
    assert signals == [(signal.SIGKILL, ["a"] if is_done else [])]


# Lies


def test_a_stale_list_is_the_last_one():
    inner = MemoryStore()
    inner.create("f/of another", b"")
    store = ChaosStore(inner, faults := At("list", Fault.STALE_LIST))
    store.create("f/mine", b"")
    assert list(store.list("f/")) == ["f/of another"], "without one, what this process did not create"
    faults.fault = None
    assert list(store.list("f/")) == ["f/mine", "f/of another"]
    store.create("f/new", b"")
    store.delete("f/mine")
    faults.fault = Fault.STALE_LIST
    assert list(store.list("f/")) == ["f/mine", "f/of another"]
    assert list(store.list("f/", "f/mine")) == ["f/of another"]
    faults.fault = None
    assert list(store.list("f/")) == ["f/new", "f/of another"]


def test_a_store_that_lies_ignores_conditions_tears_writes_and_flips_one_bit():
    inner = MemoryStore()
    store = chaotic(inner, ignored_conditions=1)
    assert [store.create("a", b"1"), store.create("a", b"2")] == [True, True]
    assert inner.read("a") == b"2"
    write(store)
    assert inner.read("a") == b"abcdefghi"
    torn = chaotic(inner, torn_writes=1)
    assert torn.create("c", b"12345678")
    torn.put("p", b"12345678")
    write(torn, "w")
    assert [inner.read(key) for key in "cpw"] == [b"1234", b"1234", b"abc"]
    rotten = chaotic(inner, bit_rot=1)
    rotten.put("p", bytes(8))
    assert int.from_bytes(inner.read("p"), "little").bit_count() == 1
    inner.put("r", bytes(8))
    assert int.from_bytes(chaotic(inner, bad_reads=1).read("r"), "little").bit_count() == 1
    assert inner.read("r") == bytes(8)


@pytest.mark.parametrize("lie", LIES)
def test_a_store_that_always_lies_fails_the_self_test(lie):
    with pytest.raises(StoreUnfit, match="cannot hold a log"):
        self_test(chaotic(**{lie: 1}), "nonce")
