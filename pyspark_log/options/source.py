"""The options of a read, parsed once at the edge."""

from __future__ import annotations

from typing import Any

from pyspark_log.options import position, value
from pyspark_log.options.option import BATCH, REQUIRED, SOURCE, STREAM, Given, Kind, Option, Options, opt
from pyspark_log.options.position import CommittedOffsets, GlobalTimestamp, Position
from pyspark_log.options.subscription import ASSIGN, COMPACTIONS, SUBSCRIBE, SUBSCRIBE_PATTERN, TOPIC_IDS, Subscription
from pyspark_log.options.value import COUNT, boolean, choice, integer
from pyspark_log_storage.errors import InvalidOption
from pyspark_log_storage.stores.storage_options import StorageOptions


class SourceOptions(Options, kinds=SOURCE):
    """The options of a read. `ending` is the latest offset in a streaming read, which has no end."""

    path = opt("path", value.URL, REQUIRED)
    _subscribe = opt("subscribe", SUBSCRIBE, REQUIRED)
    _subscribe_pattern = opt("subscribePattern", SUBSCRIBE_PATTERN, REQUIRED)
    _assign = opt("assign", ASSIGN, REQUIRED)
    subscription: Subscription
    _starting_offsets_batch = opt("startingOffsets", position.BATCH_START, "earliest", BATCH)
    _starting_offsets_stream = opt("startingOffsets", position.STREAM_START, "latest", STREAM)
    _starting_timestamp = opt("startingTimestamp", position.GLOBAL_TIMESTAMP)
    _starting_offsets_by_timestamp = opt("startingOffsetsByTimestamp", position.TIMESTAMPS)
    starting: Position
    starting_no_match = opt(
        "startingOffsetsByTimestampStrategy", choice({each.value: each for each in position.NoMatch}), "error"
    )
    _ending_offsets = opt("endingOffsets", position.BATCH_END, "latest", BATCH)
    _ending_timestamp = opt("endingTimestamp", position.GLOBAL_TIMESTAMP, kinds=BATCH)
    _ending_offsets_by_timestamp = opt("endingOffsetsByTimestamp", position.TIMESTAMPS, kinds=BATCH)
    ending: Position
    group_id = opt("group.id", value.GROUP, unset="", kinds=STREAM)
    longest_pause = opt("fetch.max.wait.ms", value.seconds(1), kinds=STREAM)
    fail_on_data_loss = opt("failOnDataLoss", boolean, "true")
    max_offsets_per_trigger = opt("maxOffsetsPerTrigger", integer(1), kinds=STREAM, lenient=True)
    max_offsets_per_trigger_per_partition = opt(
        "maxOffsetsPerTriggerPerPartition", integer(1), kinds=STREAM, lenient=True
    )
    max_bytes_per_trigger = opt("maxBytesPerTrigger", value.BYTES, kinds=STREAM, lenient=True)
    min_offsets_per_trigger = opt("minOffsetsPerTrigger", integer(0), kinds=STREAM, lenient=True)
    max_trigger_delay_ms = opt("maxTriggerDelay", value.DURATION, "15m", STREAM, lenient=True)
    min_partitions = opt("minPartitions", COUNT)
    max_records_per_partition = opt("maxRecordsPerPartition", integer(1))
    max_records_on_driver = opt("maxRecordsOnDriver", integer(0), "10000", STREAM, lenient=True)
    include_headers = opt("includeHeaders", boolean, "false")
    version_as_of = opt("versionAsOf", integer(1), kinds=BATCH)
    topic_ids = opt("topicIds", TOPIC_IDS, unset={}, kinds=BATCH)
    compactions = opt("compactions", COMPACTIONS, unset={}, kinds=BATCH)
    client_rack = opt("client.rack", value.RACK, unset="", also="kafka.client.rack")
    native_s3 = opt("nativeS3", boolean, "false", BATCH)
    storage_options = opt("storage_options", value.JSON, unset=StorageOptions.of_environment)
    async_progress = opt("asyncProgressTrackingEnabled", choice({"false": False}), "false")

    def made_of(self, given: Given) -> dict[str, Any]:
        (starting, *_), (ending, *_) = self._starts_and_ends(given)
        start, end = given.get(starting), given.get(ending)
        low, high = self.min_offsets_per_trigger, self.max_offsets_per_trigger
        if low is not None and high is not None and low > high:
            message = f"option minOffsetsPerTrigger is {low}, which is more than maxOffsetsPerTrigger ({high})"
            raise InvalidOption("minOffsetsPerTrigger", f"{message}; decrease it, or increase maxOffsetsPerTrigger")
        if isinstance(start, CommittedOffsets):
            given.require(starting, SourceOptions.group_id)
        if isinstance(start, GlobalTimestamp) and isinstance(end, GlobalTimestamp) and start.ms > end.ms:
            message = f"option endingTimestamp is {end.ms}, which is before startingTimestamp ({start.ms})"
            raise InvalidOption("endingTimestamp", f"{message}; set a later end")  # there may be no row between
        return {"subscription": self._read_subscription(given), "starting": start, "ending": end}

    @classmethod
    def shadowed(cls, given: Given) -> list[str]:
        """Return the starts and ends before which another one that is given takes precedence."""
        places = cls._starts_and_ends(given)
        return [f"{each.name} ({first.name} takes precedence)" for first, *others in places for each in others]

    @classmethod
    def _starts_and_ends(cls, given: Given) -> list[list[Option[Any]]]:
        """Return the options of either that are given, else the default. The first takes precedence, as in Kafka's.

        What is for a stream takes everything that is for a batch read.
        """
        offsets = cls._starting_offsets_batch if given.kind is Kind.SOURCE_BATCH else cls._starting_offsets_stream
        starts = (cls._starting_timestamp, cls._starting_offsets_by_timestamp, offsets)
        ends = (cls._ending_timestamp, cls._ending_offsets_by_timestamp, cls._ending_offsets)
        return [[option for option in each if given.has(option)] or [each[-1]] for each in (starts, ends)]

    @classmethod
    def _read_subscription(cls, given: Given) -> Subscription:
        chosen = [option for option in (cls._subscribe, cls._subscribe_pattern, cls._assign) if given.has(option)]
        if len(chosen) == 1:
            return given.get(chosen[0])
        found = " and ".join(option.name for option in chosen) or "none of them"
        message = f"set exactly one of the options subscribe, subscribePattern and assign; found {found}"
        raise InvalidOption(chosen[-1].name if chosen else "subscribe", message)
