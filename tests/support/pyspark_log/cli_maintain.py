"""Topics to maintain with the command line."""

from pyspark_log.reading.fetch import fetch
from pyspark_log.reading.planning import Range, split_of
from pyspark_log_coordinator.topic.machine import AlterConfig
from tests.support.command_line import CommandLine
from tests.support.plain_log import PlainLog

NOTHING = {"topic": None, "deleted_topics": [], "temporary_files": [], "trimmed": 0, "failures": []}
"""What is said of a cluster in which nothing was due."""


def filled(cli: CommandLine, *topics: str, batches: int = 10, **settings: str) -> PlainLog:
    """Topics of so many batches, which are due for rolling."""
    log = PlainLog(cli.path)
    for topic in topics:
        log.create(topic, file_delete_delay_ms=0)
        for batch in range(batches):
            log.append(topic, {0: [b"%d" % batch]})
        log.log.topic(topic).submit(AlterConfig({"flush.messages": "1", **settings}))
    return log


def rows(log: PlainLog, topic: str) -> list[bytes]:
    handle = log.log.topic(topic)
    end = handle.journal.state.partitions[0].high_watermark
    found = fetch(log.log.store_at, split_of(handle, Range(topic, 0, 0, end)))
    return [value for _, batch in found for value in batch.column("value").to_pylist()]


def files(cli: CommandLine) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in cli.path.rglob("*") if path.is_file()}
