"""A batch read as of a version of a topic: the rows that were there then, in all partitions."""

import pytest

from pyspark_log_coordinator.journal import journal as journals
from pyspark_log_coordinator.journal import trimming
from pyspark_log_coordinator.maintenance import topic_roll
from pyspark_log_coordinator.segments.retention import DeleteRecords
from pyspark_log_storage.errors import DataLoss, InvalidInput, UnknownVersion
from tests.support.direct import read, values
from tests.support.plain_log import PlainLog
from tests.support.pyspark_log.compacted_log import CompactedLog


@pytest.fixture
def log(tmp_path):
    made = PlainLog(tmp_path)
    made.create("t", 2)
    return made


def as_of(log, version, **options):
    return values(read(log.path, subscribe="t", versionAsOf=version, **options))


def newest(log):
    return log.log.topic("t").journal.number


def test_every_version_has_the_rows_of_its_time(log, monkeypatch):
    rows, versions = {0: [], 1: []}, {newest(log): {}}
    for i in range(6):
        for p, added in ((0, [b"a%d" % i]), (1, [b"b%d" % i, b"c%d" % i])):
            rows[p] += added
        log.append("t", {0: [b"a%d" % i], 1: [b"b%d" % i, b"c%d" % i]})
        versions[newest(log)] = {p: list(each) for p, each in rows.items()}
    monkeypatch.setattr("pyspark_log_coordinator.segments.roll_plan.ROLL_CHUNKS", 2)
    assert topic_roll.roll_and_merge(log.log.topic("t"))["segments"] > 0
    log.append("t", {0: [b"last"]})
    for version, expected in versions.items():
        assert as_of(log, version) == expected


def test_other_options_narrow_a_version(log):
    log.append("t", {0: [b"a", b"b", b"c"], 1: [b"x"]})
    version = newest(log)
    log.append("t", {0: [b"d"]})
    start, end = '{"t":{"0":1,"1":-2}}', '{"t":{"0":2,"1":-1}}'
    assert as_of(log, version, startingOffsets=start) == {0: [b"b", b"c"], 1: [b"x"]}
    assert as_of(log, version, startingOffsets=start, endingOffsets=end) == {0: [b"b"], 1: [b"x"]}
    assert as_of(log, version, startingOffsets='{"t":{"0":4,"1":1}}') == {}


def test_a_trimmed_version_is_an_error_that_names_those_kept(log, monkeypatch):
    monkeypatch.setattr(journals, "SNAPSHOT_EVERY", 4)
    for i in range(30):
        log.append("t", {0: [b"%d" % i]})
    trimming.trim(log.log.topic("t").journal)
    with pytest.raises(UnknownVersion, match="versions 16 to 31"):
        as_of(log, 15)
    assert as_of(log, 16) == {0: [b"%d" % i for i in range(15)]}


def test_a_version_whose_rows_have_expired_is_a_loss_or_empty(log):
    log.append("t", {0: [b"a"]})
    version = newest(log)
    log.append("t", {0: [b"b", b"c"]})
    log.log.topic("t").submit(DeleteRecords(0, 2))
    with pytest.raises(DataLoss, match="partition 0: all rows of the version have expired"):
        as_of(log, version)
    assert as_of(log, version, failOnDataLoss="false") == {}


def test_a_version_whose_rows_were_compacted_with_later_ones_is_a_loss(tmp_path):
    """The newest rows of keys have been removed for some that the version does not have."""
    log = CompactedLog(tmp_path / "compacted")
    log.add([b"a", b"b", b"c"])
    version = newest(log)
    log.add([b"a", b"b"])
    log.clean()
    with pytest.raises(DataLoss, match=r"rows up to offset 4 have been compacted, and the version ends at 3, so rows"):
        as_of(log, version)
    assert as_of(log, version, failOnDataLoss="false") == {0: [b"2"]}
    assert as_of(log, version, startingOffsets='{"t":{"0":3}}') == {}


def test_a_version_is_of_one_topic(log):
    log.create("u")
    with pytest.raises(InvalidInput, match="versionAsOf is a version of one topic, and 2 are subscribed"):
        read(log.path, subscribe="t,u", versionAsOf=1)
