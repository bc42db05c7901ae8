"""Every decoder of the product gives a value or a `LogError`, whatever the bytes are, within bounds of memory and time.

`decoders` lists them. A new one that is not in `decoder_places` fails a test here. How values are used that have
the right types and are impossible is in `test_decoders_fuzzed`; chunks and indexes whose checksums are right again, in
`hostile_worker`.
"""

import ast
import contextlib
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pyspark_log_coordinator.environment import real_environment
from pyspark_log_coordinator.log.log import topic_inbox
from pyspark_log_storage import layout
from pyspark_log_storage.errors import CorruptObject, LogError
from pyspark_log_storage.objects import node
from pyspark_log_storage.objects.envelope import HEADER_BYTES, seal
from tests.support import decoder_worker
from tests.support.decoder_places import OWN, PLACES
from tests.support.decoders import ENVELOPED, EVERY
from tests.support.memory_store import MemoryStore

ROOT = Path(__file__).parent.parent
PACKAGES = {
    "pyspark_log": ROOT / "pyspark_log",
    "pyspark_log_coordinator": ROOT / "coordinator" / "pyspark_log_coordinator",
    "pyspark_log_storage": ROOT / "storage" / "pyspark_log_storage",
}
CALLS = {
    "base64.b64decode",
    "csv.reader",
    "json.load",
    "json.loads",
    "marshal.loads",
    "msgspec.convert",
    "msgspec.json.Decoder",
    "msgspec.json.decode",
    "msgspec.msgpack.Decoder",
    "msgspec.msgpack.decode",
    "np.frombuffer",
    "pickle.loads",
    "unseal",
}
METHODS = {
    "iter_unpack",
    "open_file",
    "open_stream",
    "read_message",
    "read_record_batch",
    "read_schema",
    "unpack",
    "unpack_from",
}
"""The calls by which bytes become values. `open_file`, `open_stream` and `read_...` are Arrow's."""
MEBIBYTES_IN_USE = 128
fuzzed = settings(
    max_examples=60,
    derandomize=True,
    database=None,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
every_decoder = pytest.mark.parametrize("kind", EVERY)
WORDS = st.sampled_from([0, 1, 2**15, 2**16 - 1, 2**31 - 1, 2**31, 2**32 - 1, 2**62, 2**63 - 1, 2**63, 2**64 - 1])


def dotted(call):
    if isinstance(call, ast.Attribute):
        return f"{dotted(call.value)}.{call.attr}"
    return call.id if isinstance(call, ast.Name) else ""


def name_of(statement):
    targets = getattr(statement, "targets", None) or [getattr(statement, "target", None)]
    return getattr(statement, "name", None) or dotted(targets[0])


def places():
    """Return where the product decodes: `module:name of a function, a class or a constant of the module`."""
    found, words = set(), METHODS | {each.rpartition(".")[2] for each in CALLS}
    for package, folder in PACKAGES.items():
        for file in folder.rglob("*.py"):
            text = file.read_text()
            if not any(word in text for word in words):
                continue  # parsing takes its time
            module = ".".join((package, *file.relative_to(folder).with_suffix("").parts))
            for statement in ast.parse(text).body:
                calls = (dotted(each.func) for each in ast.walk(statement) if isinstance(each, ast.Call))
                if any(each in CALLS or each.rpartition(".")[2] in METHODS for each in calls):
                    found.add(f"{module}:{name_of(statement)}")
    return found


def test_every_place_that_decodes_is_in_the_table():
    known = {*PLACES, *OWN}
    assert places() - known == set(), "add it to tests/support/decoder_places.py and tests/support/decoders.py"
    assert known - places() == set(), "it decodes nothing any more"
    assert set(PLACES.values()) <= set(EVERY)


@st.composite
def changed(draw, whole):
    """Bytes of which some are flipped, cut, doubled, or are a number that is too large."""
    data = bytearray(whole)
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, max(0, len(data) - 1)))
        match draw(st.sampled_from(["flip", "cut", "cut the end", "insert", "double", "word"])):
            case "flip" if data:
                data[at] ^= 1 << draw(st.integers(0, 7))
            case "cut":
                del data[at : at + draw(st.integers(1, 16))]
            case "cut the end":
                del data[at:]
            case "insert":
                data[at:at] = draw(st.binary(min_size=1, max_size=16))
            case "double":
                data[at:at] = data[at : at + draw(st.integers(1, 64))]
            case "word":
                size = draw(st.sampled_from([1, 2, 4, 8]))
                order = draw(st.sampled_from(["little", "big"]))
                data[at : at + size] = (draw(WORDS) % 2 ** (8 * size)).to_bytes(size, order)
            case _:
                pass
    return bytes(data)


def inputs(kind):
    """Anything; real bytes that were changed; and what has an envelope with another body, and the checksum of that."""
    valid = EVERY[kind][0]
    found = st.binary(max_size=300) | changed(valid)
    if kind in ENVELOPED:
        version = int.from_bytes(valid[4:6], "little")
        bodies = st.binary(max_size=300) | changed(valid[HEADER_BYTES:]) | changed(valid[HEADER_BYTES:])
        found |= bodies.map(lambda body: seal(valid[:4], version, body))
    return found


@every_decoder
def test_what_the_product_writes_is_read(kind):
    valid, decode = EVERY[kind]
    decode(valid)


@every_decoder
def test_whatever_is_given_is_a_value_or_an_error_of_the_log(kind):
    _, decode = EVERY[kind]

    @fuzzed
    @given(data=inputs(kind))
    def hold(data):
        with contextlib.suppress(LogError):
            decode(data)

    hold()


FOUND = [
    ("rows in JSON", b'{"key":"","value":{"":[2]},"headers":""'),
    ("metadata of a committed offset", b'{"unknown":' + b"[" * 2000 + b"]" * 2000 + b"}"),
    ("storage_options", b"[" * 2000),
    ("storage_options", b"\xff"),
    ("address with faults", b"seed=\xff"),
]
"""What once was another error."""


@pytest.mark.parametrize(("kind", "data"), FOUND)
def test_what_was_no_error_of_the_log_is_one(kind, data):
    with contextlib.suppress(LogError):
        EVERY[kind][1](data)


class Measured(MemoryStore):
    """Has the longest answer to a read."""

    longest = 0

    def read(self, key, start=0, length=None):
        data = super().read(key, start, length)
        self.longest = max(self.longest, len(data))
        return data


def test_of_a_huge_object_where_a_small_one_is_expected_little_is_read():
    store = Measured()
    for key in (layout.MARKER, "a command"):
        store.put(key, bytes(2**24))
    with pytest.raises(CorruptObject):
        node.read_marker(store)
    assert topic_inbox("j/", real_environment())._command(store, "a command") is None
    assert store.longest <= 2**16


@pytest.mark.slow
def test_no_input_fills_the_memory_or_the_stack_of_a_process():
    """In a process that may take little more address space than it has."""
    done = subprocess.run(
        [sys.executable, "-m", decoder_worker.__name__], cwd=ROOT, capture_output=True, text=True, check=False
    )
    *wrong, last = done.stdout.splitlines()
    assert (wrong, done.returncode) == ([], 0), done.stderr[-2000:]
    tried, mebibytes = map(int, last.split())
    assert tried > 3000
    assert mebibytes < MEBIBYTES_IN_USE
