"""The key of every stored object.

    node                                            the node's marker
    cluster/journal-nodes                           the stores of the journals, if there are several
    cluster/entries/<number>                        the cluster's journal
    cluster/snapshots/<newest first>
    topics/<topic>/<topic id>/journal/entries/<number>
    topics/<topic>/<topic id>/journal/snapshots/<newest first>
    topics/<topic>/<topic id>/journal/inbox/<born>-<nonce>     commands that wait for the next entry
    topics/<topic>/<topic id>/journal/answers/<born>-<nonce>   what became of them
    topics/<topic>/<topic id>/append/<born>-<nonce>     append files
    topics/<topic>/<topic id>/<partition>/<base offset>-<born>-<nonce>.log, .index    segments of chunks
    topics/<topic>/<topic id>/<partition>/<base offset>-<born>-<nonce>.parquet, .parquet.index    segments as Parquet
    topics/<topic>/<topic id>/description
    topics/<topic>/<topic id>/_delta_log/<version>.json, <version>.checkpoint.parquet, _last_checkpoint
    groups/<journal id>/journal/...                 the journal of a group, as that of a topic
    groups/<journal id>/heartbeats/<member id>.<counter>     the newest heartbeat of a member
    backups/<number>                                a backup, beside the files of topics that it names
    selftest/                                       objects of the store's self-test; empty afterwards

Every path of a topic contains its id, so that a topic that was deleted and created again shares nothing with the
deleted one. Journals are at the cluster root, append files on each node; with one node both are one store. On several
journal nodes an entry is several objects, `<number>.<ballot>` and `<number>.<ballot>.claim`; after the journals have
migrated these are in `entries.<generation>/`. Numbers have 20 digits, so that keys sort in the order of the numbers.

Only objects with such keys are ever deleted. Other files in these folders do not belong to pyspark_log.
"""

from __future__ import annotations

import re

_DIGITS = 20
_NUMBER = rf"[0-9]{{{_DIGITS}}}"
_NONCE = "[0-9A-Za-z]{1,64}"
BORN_NAME = rf"{_NUMBER}-{_NONCE}"
"""The pattern of `born_name`."""
LOG = ".log"
PARQUET = ".parquet"
SEGMENT_NAME = rf"{_NUMBER}-{_NUMBER}-{_NONCE}(\.parquet)?"
"""The pattern of `segment_name`."""
_SEGMENT_FILE_NAME = rf"{_NUMBER}-{_NUMBER}-{_NONCE}\.(log|index|parquet|parquet\.index)"
_BORN = re.compile(BORN_NAME)
UNIQUE_ID = "[0-9A-Za-z_-]{1,64}"
"""The pattern of the id of a topic, or of a group's journal. Either is a part of a path."""
_SEGMENT_ROWS = re.compile(rf"(.*/)?{_NUMBER}-{_NUMBER}-{_NONCE}\.(log|parquet)")
_SEGMENT_FILE = re.compile(_SEGMENT_FILE_NAME)
_HEARTBEAT = re.compile(r"([0-9A-Za-z._-]+)\.([1-9][0-9]{0,18})")
_JOURNAL = rf"(entries(\.[0-9]+)?/{_NUMBER}(\.[0-9]+(\.claim)?)?|snapshots/{_NUMBER})"
_DELTA_LOG = rf"_delta_log/({_NUMBER}\.(json|checkpoint\.parquet)|_last_checkpoint)"
_OF_TOPIC = re.compile(
    rf"journal/({_JOURNAL}|(inbox|answers)/{BORN_NAME})|append/{BORN_NAME}|[0-9]+/({_SEGMENT_FILE_NAME})"
    rf"|description|{_DELTA_LOG}"
)
_WRITTEN_IN_PARTS = re.compile(rf"topics/[^/]+/[^/]+/(append/{BORN_NAME}|[0-9]+/{_SEGMENT_FILE_NAME})")
NUMBER_MAX: int = 10**_DIGITS - 1
CLUSTER_JOURNAL = "cluster/"
JOURNAL_NODES = "cluster/journal-nodes"
TOPICS = "topics/"
GROUPS = "groups/"
BACKUPS = "backups/"
_BACKUP = re.compile(rf"{BACKUPS}({_NUMBER})")


def backup(n: int) -> str:
    return f"{BACKUPS}{number(n)}"


def number_of_backup(key: str) -> int | None:
    """Return the number of the backup at `key`, or None for a foreign file."""
    found = _BACKUP.fullmatch(key)
    return int(found[1]) if found else None


def number(n: int) -> str:
    """Return `n` with 20 digits."""
    assert 0 <= n <= NUMBER_MAX
    return f"{n:0{_DIGITS}d}"


def newest_first(n: int) -> str:
    """Return a key part that sorts before those of all lower numbers."""
    return number(NUMBER_MAX - n)


def number_of_newest_first(part: str) -> int:
    """Return the number whose `newest_first` is `part`. Raises `ValueError` for other text."""
    if len(part) != _DIGITS or not (part.isascii() and part.isdigit()):
        raise ValueError(f"{part!r} is not a number of {_DIGITS} digits")
    return NUMBER_MAX - int(part)


def born_name(born: int, nonce: str) -> str:
    """Return the name of a file. `born` is the newest journal entry that its writer knew, `nonce` is unique."""
    return f"{number(born)}-{nonce}"


def born_of(name: str) -> int:
    """Return the born in a file's name: the first part for an append file, the second for a segment."""
    return int(name.split("-")[-2])


def base_offset_of(key: str) -> int:
    """Return the base offset in a segment's name or key, with or without ending."""
    return int(key.rpartition("/")[2].partition("-")[0])


def is_id(text: str) -> bool:
    """Return whether `text` can be the id of a topic, or of a group's journal. Either is a part of a path."""
    return re.fullmatch(UNIQUE_ID, text) is not None


def is_born_name(name: str) -> bool:
    """Return whether `name` is the name of an append file, or of a command in an inbox."""
    return _BORN.fullmatch(name) is not None


def is_segment_file(name: str) -> bool:
    return _SEGMENT_FILE.fullmatch(name) is not None


def is_of_topic(key: str, folder: str) -> bool:
    """Return whether `key` is one of the product's in `folder`, the folder of a topic id, which ends with "/"."""
    return key.startswith(folder) and _OF_TOPIC.fullmatch(key, len(folder)) is not None


def is_written_in_parts(key: str) -> bool:
    """Return whether `key` is one of the product's large files: an append file or a segment's."""
    return _WRITTEN_IN_PARTS.fullmatch(key) is not None


def segment_name(base_offset: int, born: int, nonce: str, *, parquet: bool = False) -> str:
    """Return the name of a segment: without ending if its rows are in a .log, with it if they are in a .parquet."""
    return f"{number(base_offset)}-{born_name(born, nonce)}{PARQUET if parquet else ''}"


def is_parquet(segment: str) -> bool:
    """Return whether the rows of a segment, given by its name or key, are in a .parquet."""
    return segment.endswith(PARQUET)


def segment_file(segment: str) -> str:
    """Return the key of the file with the rows of the segment with this key, or its name."""
    return segment if is_parquet(segment) else f"{segment}{LOG}"


def ending(segment: str) -> str:
    """Return how the name of the file with a segment's rows ends."""
    return PARQUET if is_parquet(segment) else LOG


def segment_files(segment: str) -> tuple[str, str]:
    """Return the keys of both files of a segment: its rows, and its index."""
    return segment_file(segment), f"{segment}.index"


def segment_in(file: str) -> str | None:
    """Return the key of the segment whose rows are in `file`, a key or a name, or None if that is no such file."""
    return file.removesuffix(LOG) if _SEGMENT_ROWS.fullmatch(file) else None


def name_of(key: str) -> str:
    """Return the last part of a key: of a segment its name, which is never used twice and so tells whose bytes are."""
    return key.rpartition("/")[2]


def topic_folder(topic: str, topic_id: str) -> str:
    return f"{TOPICS}{topic}/{topic_id}/"


def topic_journal(topic: str, topic_id: str) -> str:
    return f"{topic_folder(topic, topic_id)}journal/"


def group_journal(journal_id: str) -> str:
    return f"{GROUPS}{journal_id}/journal/"


def heartbeats(journal_id: str) -> str:
    """Return the folder of the heartbeats of a group's members: empty objects, whose names say all."""
    return f"{GROUPS}{journal_id}/heartbeats/"


def heartbeat(member_id: str, count: int) -> str:
    return f"{member_id}.{count}"


def of_heartbeat(name: str) -> tuple[str, int] | None:
    """Return the member id and the counter in the name of a heartbeat, or None for a foreign file."""
    found = _HEARTBEAT.fullmatch(name)
    return (found[1], int(found[2])) if found else None


def entries(journal: str, generation: int = 1) -> str:
    """Return the folder of a journal's entries in a generation of its stores."""
    return f"{journal}entries/" if generation == 1 else f"{journal}entries.{generation}/"


def inbox(journal: str) -> str:
    """Return the folder of the commands that wait for a journal's next entry."""
    return f"{journal}inbox/"


def answers(journal: str) -> str:
    """Return the folder of the answers to the commands that have waited in a journal's inbox."""
    return f"{journal}answers/"


def append_file(topic: str, topic_id: str, name: str) -> str:
    return f"{append_files(topic, topic_id)}{name}"


def append_files(topic: str, topic_id: str) -> str:
    return f"{topic_folder(topic, topic_id)}append/"


MARKER = "node"
SELF_TEST = "selftest/"
"""The folder of the self-test, which is run before the store has a marker."""
