"""A store with faults does wrong what its address says, as often as it says, and nothing else."""

import contextlib
import os
import signal
import subprocess
import sys
import uuid

import pytest

from pyspark_log_storage import layout
from pyspark_log_storage.errors import InvalidOption, ObjectMissing, StoreError, StoreUnavailable, StoreUnfit
from pyspark_log_storage.stores.addresses import absolute_url, inner_url, open_store
from pyspark_log_storage.stores.chaos import ChaosStore
from pyspark_log_storage.stores.faults import Fault, RandomFaults, faults_at, parse_options
from pyspark_log_storage.stores.local import LocalStore
from pyspark_log_storage.stores.self_test import self_test
from pyspark_log_storage.stores.storage_options import StorageOptions
from pyspark_log_storage.stores.store import is_object_store
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
        ("chaos+file:///data/log?seed=7", "chaos+file:///data/log?seed=7"),
        ("CHAOS+FILE:///data/log/?seed=7&bit_rot=0.5", "chaos+file:///data/log?seed=7&bit_rot=0.5"),
        ("chaos+/data/log?seed=7", "chaos+file:///data/log?seed=7"),
        ("chaos+/data/log", "chaos+file:///data/log"),
        ("chaos+/data/a%b?c d?seed=7", "chaos+file:///data/a%25b%3Fc%20d?seed=7"),
        ("chaos+s3a://bucket/log?seed=7", "chaos+s3://bucket/log?seed=7"),
    ],
)
def test_the_address_of_a_store_with_faults_is_canonical(given_as, meant):
    assert absolute_url(given_as) == absolute_url(meant) == meant


def test_the_address_opens_the_store_that_it_names(tmp_path):
    folder = tmp_path / "a?b %"
    store = open_store(absolute_url(f"chaos+{folder}?seed=1"))
    store.put("selftest/key", b"bytes")
    assert (folder / "selftest" / "key").read_bytes() == b"bytes"
    assert store.url == absolute_url(f"chaos+{folder}?seed=1")
    assert inner_url(store.url) == str(folder) == inner_url(str(folder))
    assert open_store(store.url).read("selftest/key") == b"bytes"


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ("lost=0.1", "there is no option 'lost'; choose from seed, delay_ms,"),
        ("kills=2", "kills is 2; choose a probability from 0 to 1"),
        ("slow_down=-0.1", "choose a probability"),
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


def test_nothing_of_it_is_loaded_unless_it_is_used():
    script = (
        "import sys; from pyspark_log_storage.stores.addresses import absolute_url, open_store; "
        "open_store(absolute_url('/tmp/x')); print({'chaos', 'faults'} & {n.split('.')[-1] for n in sys.modules})"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"


def test_an_error_of_the_wrapped_store_names_the_store_with_faults(tmp_path):
    """Whoever copies from one store to another knows by the address which of them failed."""
    url = absolute_url(f"chaos+{tmp_path}/file/below?seed=1")
    (tmp_path / "file").touch()
    for call in ("read", "size", "open_write"):
        with pytest.raises(StoreError) as failed:
            getattr(open_store(url), call)("selftest/x")
        assert failed.value.url == url
    with pytest.raises(StoreError) as failed:
        list(open_store(url).list("selftest/"))
    assert failed.value.url == url


# Faults


def outcomes(store, calls=200):
    """What a process meets that creates, reads, lists and deletes."""
    found = []
    for number in range(calls):
        key = f"f/{number % 10}"
        for call in (
            lambda key=key: store.create(key, b"some bytes"),
            lambda key=key: store.read(key),
            lambda: list(store.list("f/")),
            lambda key=key, number=number: store.delete(key) if number % 7 == 0 else None,
        ):
            try:
                found.append(call())
            except StoreError as error:
                found.append(type(error))
    return found


MANY = dict.fromkeys((*LIES, *WITHIN_THE_PROMISE), 0.1)


def test_the_same_seed_and_calls_meet_the_same_faults():
    assert outcomes(chaotic(**MANY)) == outcomes(chaotic(**MANY))
    assert outcomes(chaotic(**MANY)) != outcomes(chaotic(**MANY | {"seed": 8}))


def test_without_faults_it_is_the_store_that_it_wraps():
    assert outcomes(chaotic()) == outcomes(MemoryStore())
    self_test(chaotic(), "nonce")


def test_faults_come_as_often_as_the_address_says():
    store = chaotic(lost_answers=0.1)
    failed = sum(each is StoreUnavailable for each in outcomes(store, 2000))
    assert 0.07 < failed / 6300 < 0.13


def test_a_call_that_is_not_answered_does_nothing():
    inner = MemoryStore()
    for option in ("unavailable", "slow_down"):
        store = chaotic(inner, **{option: 1})
        for call in (
            lambda store=store: store.create("a", b"x"),
            lambda store=store: store.create_unflushed("a", b"x"),
            lambda store=store: store.put("a", b"x"),
            lambda store=store: store.open_write("a"),
            lambda store=store: store.read("a"),
            lambda store=store: store.size("a"),
            lambda store=store: store.exists("a"),
            lambda store=store: store.delete("a"),
            lambda store=store: list(store.list("")),
            lambda store=store: list(store.folders("a/")),
            lambda store=store: store.remove_folders("a/"),
            lambda store=store: store.delete_unfinished(),
        ):
            with pytest.raises(StoreUnavailable, match="on purpose"):
                call()
    assert list(inner.list("")) == []


def test_slow_down_is_said_in_the_words_of_s3():
    with pytest.raises(StoreUnavailable, match="503 SlowDown: please reduce your request rate"):
        chaotic(slow_down=1).put("a", b"x")


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


def test_a_failed_write_leaves_no_temporary_file(tmp_path):
    for call in ("open", "write", "close"):
        store = ChaosStore(LocalStore(str(tmp_path)), At(call, Fault.UNAVAILABLE))
        with pytest.raises(StoreUnavailable):
            write(store)
    assert not (tmp_path / ".tmp").exists() or os.listdir(tmp_path / ".tmp") == []


def test_calls_take_a_random_time_longer():
    slept = []
    outcomes(chaotic(sleep=slept.append, delay_ms=50), 100)
    assert len(set(slept)) > 100
    assert 0.04 < max(slept) <= 0.05


def test_only_the_marker_seems_to_be_missing():
    store = chaotic(missing_markers=1)
    for key in (layout.MARKER, "other"):
        store.create(key, b"x")
    for call in (store.read, store.size):
        with pytest.raises(ObjectMissing):
            call(layout.MARKER)
        call("other")


@pytest.mark.parametrize("is_late", [False, True])
def test_the_process_is_killed_at_a_call(tmp_path, is_late):
    """With some seeds before the call is done, with others after it."""
    wanted = Fault.KILL_AFTER if is_late else Fault.KILL_BEFORE
    options = (f"kills=1&seed={seed}" for seed in range(100))
    option = next(each for each in options if RandomFaults(parse_options(each)).at("put", "selftest/a") is wanted)
    opened = f"open_store('chaos+{tmp_path}?{option}').put('selftest/a', b'')"
    script = f"from pyspark_log_storage.stores.addresses import *; {opened}"
    done = subprocess.run([sys.executable, "-c", script], check=False)
    assert done.returncode == -signal.SIGKILL
    assert (tmp_path / "selftest" / "a").exists() == is_late


# Lies


def test_a_stale_list_is_the_last_one():
    inner = MemoryStore()
    store = ChaosStore(inner, faults := At("list", None))
    store.create("f/old", b"")
    assert list(store.list("f/")) == ["f/old"]
    store.create("f/new", b"")
    store.delete("f/old")
    faults.fault = Fault.STALE_LIST
    assert list(store.list("f/")) == ["f/old"]
    assert list(store.list("f/", "f/old")) == []
    faults.fault = None
    assert list(store.list("f/")) == ["f/new"]


def test_a_stale_first_list_lacks_what_the_process_created():
    inner = MemoryStore()
    inner.create("f/of another", b"")
    store = chaotic(inner, stale_lists=1)
    store.create("f/mine", b"")
    assert list(store.list("f/")) == ["f/of another"]


def test_an_ignored_condition_replaces_the_object():
    inner = MemoryStore()
    store = chaotic(inner, ignored_conditions=1)
    assert [store.create("a", b"1"), store.create("a", b"2")] == [True, True]
    assert inner.read("a") == b"2"
    write(store)
    assert inner.read("a") == b"abcdefghi"


def test_a_torn_write_stores_the_first_part():
    inner = MemoryStore()
    store = chaotic(inner, torn_writes=1)
    assert store.create("c", b"12345678")
    store.put("p", b"12345678")
    write(store, "w")
    assert [inner.read(key) for key in "cpw"] == [b"1234", b"1234", b"abc"]


def test_bit_rot_flips_one_stored_bit_and_a_bad_read_none():
    inner = MemoryStore()
    store = chaotic(inner, bit_rot=1)
    store.create("c", bytes(8))
    store.put("p", bytes(8))
    for data in (inner.read("c"), inner.read("p")):
        assert int.from_bytes(data, "little").bit_count() == 1
    write(store, "w")
    assert len(inner.read("w")) == 9
    assert inner.read("w") != b"abcdefghi"
    inner.put("r", bytes(8))
    assert int.from_bytes(chaotic(inner, bad_reads=1).read("r"), "little").bit_count() == 1
    assert inner.read("r") == bytes(8)


@pytest.mark.parametrize("lie", LIES)
@pytest.mark.parametrize("seed", range(5))
def test_a_store_that_always_lies_fails_the_self_test(lie, seed):
    with pytest.raises(StoreUnfit, match="cannot hold a log"):
        self_test(chaotic(seed=seed, **{lie: 1}), "nonce")


def test_a_bucket_can_be_wrapped_too(moto, moto_bucket):
    options = StorageOptions.given(moto.options)
    address = absolute_url(f"chaos+s3://{moto_bucket}/{uuid.uuid4().hex}?seed=1")
    self_test(open_store(address, options), "nonce")
    with pytest.raises(StoreUnfit, match="overwrites an existing object"):
        self_test(open_store(f"{address}&ignored_conditions=1", options), "nonce")


def test_it_is_an_object_store_if_what_it_wraps_is_one(tmp_path):
    """Otherwise a journal in a bucket would have spares, and cost their requests, during a drill."""
    bucket = open_store("chaos+s3://bucket/log?seed=1", StorageOptions.given({"key": "k", "secret": "s"}))
    assert is_object_store(bucket)
    assert not is_object_store(open_store(f"chaos+file://{tmp_path}?seed=1"))


@pytest.mark.parametrize("option", WITHIN_THE_PROMISE)
def test_a_store_that_only_fails_is_not_called_unfit(option):
    """It passes, or the test ends with an error after which it can be repeated."""
    for seed in range(50):
        with contextlib.suppress(StoreUnavailable):
            self_test(chaotic(seed=seed, **{option: 0.02}), "nonce")


def test_every_fault_can_happen_somewhere():
    calls = ("create", "open", "put", "read", "size", "list")
    assert {each for call in calls for each in faults_at(call, layout.MARKER)} == set(Fault)
