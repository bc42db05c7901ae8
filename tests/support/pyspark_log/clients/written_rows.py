"""What programs have written, as a Consumer reads it."""

from pyspark_log import Consumer

GUARD = 60
"""Seconds after which a test that hangs fails."""


def rows_of(log, topic="t"):
    """All rows, by partition."""
    with Consumer(log.path) as consumer:
        consumer.assign(consumer.partitions(topic), "earliest")
        rows = {key.partition: [] for key in consumer.assignment()}
        while found := consumer.poll():
            for row in found:
                rows[row.partition].append(row)
        return rows


def values_of(log, topic="t"):
    return {partition: [row.value for row in rows] for partition, rows in rows_of(log, topic).items()}


def entries_of(log, topic):
    return log.log.topic(topic).journal.number
