"""The frame around stored objects: what was sealed comes back, and nothing else does."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyspark_log_storage.errors import CorruptObject, NewerFormat
from pyspark_log_storage.objects.envelope import HEADER_BYTES, is_whole, read_if_there, seal, unseal
from tests.support.memory_store import MemoryStore

MAGIC = b"PLXX"
SEALED = seal(MAGIC, 1, b"some body")
PLACE = "topics/t/1/journal/entries/00000000000000000003"
PLACED = seal(MAGIC, 2, b"some body", PLACE)


def flipped(data, byte, bit):
    return data[:byte] + bytes([data[byte] ^ (1 << bit)]) + data[byte + 1 :]


def crc32c(data):
    """Bit by bit, as the polynomial says, so that the test shares nothing with the library."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


@given(magic=st.binary(min_size=4, max_size=4), version=st.integers(0, 2**16 - 1), body=st.binary())
def test_what_was_sealed_comes_back_also_for_a_newer_reader(magic, version, body):
    assert unseal(magic, version, seal(magic, version, body), "x") == body
    assert unseal(magic, version + 1, seal(magic, version, body), "x") == body


def test_the_layout_is_as_drawn():
    assert SEALED[:8] == b"PLXX" + b"\1\0" + b"\0\0"
    assert SEALED[8:12] == crc32c(SEALED[:8] + SEALED[12:]).to_bytes(4, "little")
    assert SEALED[HEADER_BYTES:] == b"some body"
    assert PLACED[:8] == b"PLXX" + b"\2\0" + bytes([len(PLACE), 0])
    assert PLACED[12:] == PLACE.encode() + b"some body"


@pytest.mark.parametrize(("sealed", "version"), [(SEALED, 1), (PLACED, 2)], ids=["anywhere", "in its place"])
def test_every_flipped_bit_every_cut_and_every_addition_is_noticed(sealed, version):
    bits = [(byte, bit) for byte in range(len(sealed)) for bit in range(8)]
    damaged = [flipped(sealed, *each) for each in bits] + [sealed[:length] for length in range(len(sealed))]
    for each in [*damaged, sealed + b"\0", b"PLYY" + sealed[4:]]:
        with pytest.raises(CorruptObject, match="the object"):
            unseal(MAGIC, version, each, "the object", PLACE)


def test_a_newer_version_and_another_kind_are_distinguished_from_damage():
    with pytest.raises(NewerFormat, match=r"the object.*another version.*upgrade.*if it is older, use it for this log"):
        unseal(MAGIC, 1, seal(MAGIC, 2, b""), "the object")
    with pytest.raises(CorruptObject, match="PLYY"):
        unseal(MAGIC, 1, seal(b"PLYY", 1, b""), "the object")


def test_an_object_with_a_place_is_damaged_under_any_other_key():
    other = PLACE[:-1] + "4"
    assert unseal(MAGIC, 2, PLACED, "x", PLACE) == unseal(MAGIC, 2, PLACED, "x") == b"some body"
    with pytest.raises(CorruptObject, match=f"the object .*it was written as {PLACE}"):
        unseal(MAGIC, 2, PLACED, "the object", other)
    assert (is_whole(PLACED), is_whole(PLACED, PLACE), is_whole(PLACED, other)) == (True, True, False)
    assert (unseal(MAGIC, 1, SEALED, "x", PLACE), is_whole(SEALED, PLACE)) == (b"some body", True), "it has no place"


class Flaky(MemoryStore):
    """Returns damaged bytes at the first read."""

    def __init__(self, *, is_object_store):
        super().__init__()
        self.is_object_store = is_object_store
        self.answers = [PLACED[:-1], PLACED]

    def read(self, key, start=0, length=None):
        return self.answers.pop(0)


@pytest.mark.parametrize(("is_object_store", "expected"), [(True, PLACED), (False, PLACED[:-1])])
def test_what_seems_damaged_in_an_object_store_is_read_once_more(is_object_store, expected):
    assert read_if_there(Flaky(is_object_store=is_object_store), PLACE) == expected
    assert read_if_there(MemoryStore(), PLACE) is None
