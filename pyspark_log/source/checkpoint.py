"""What Spark has written into the checkpoint of a query about a micro-batch: where it begins and where it ends.

    <checkpoint>/offsets/<batch id>      v1, then the batch's metadata, then the offset of the source, a line each

Spark writes it before the batch runs, and reads it to repeat the batch after a restart, so it defines the batch. An
offset is the end of its batch; the offset before it is kept as long as Spark may need it.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from pyspark_log.reading import source_offset
from pyspark_log.reading.source_offset import SourceOffset
from pyspark_log_storage.errors import CorruptObject, NewerFormat

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_VERSION = "v1"


def offsets_of(spark: SparkSession, checkpoint: str, batch_id: int) -> tuple[SourceOffset, SourceOffset]:
    """Return the offsets between which a batch is, of a query with this source alone.

    Reads two small files, with Hadoop, as Spark does. Raises `CorruptObject`, `NewerFormat`, and a Java error if a file
    cannot be read.
    """
    end = _offset(spark, checkpoint, batch_id)
    return _offset(spark, checkpoint, batch_id - 1) if batch_id else SourceOffset(initial=True), end


def _offset(spark: SparkSession, checkpoint: str, batch_id: int) -> SourceOffset:
    return parse(_text(spark, f"{checkpoint}/offsets/{batch_id}"), f"{checkpoint}/offsets/{batch_id}")


def parse(text: str, name: str) -> SourceOffset:
    """Return the offset in the text of such a file, which errors call `name`. Raises `CorruptObject`, `NewerFormat`."""
    version, *lines = text.splitlines() or [""]
    if version != _VERSION:
        raise NewerFormat(name, f"its first line is {version[:20]!r} instead of {_VERSION!r}")
    if len(lines) != 2:  # noqa: PLR2004 -- see above
        raise CorruptObject(name, f"it has offsets of {len(lines) - 1} sources instead of one")
    try:
        found = json.loads(lines[1])
    except (ValueError, RecursionError) as error:
        raise CorruptObject(name, f"its offset is no JSON: {error}") from error
    if not isinstance(found, dict):
        raise CorruptObject(name, f"its offset is {lines[1][:100]!r}")
    return source_offset.parse(found)


def _text(spark: SparkSession, path: str) -> str:
    """Return a file of the checkpoint, which may be on any file system for which the session has settings."""
    jvm = spark.sparkContext._jvm  # noqa: SLF001 -- pyspark has no public way to Hadoop's file systems
    assert jvm is not None
    file = jvm.org.apache.hadoop.fs.Path(path)
    settings = spark._jsparkSession.sessionState().newHadoopConf()  # noqa: SLF001 -- as above
    stream = file.getFileSystem(settings).open(file)
    try:
        return str(jvm.org.apache.commons.io.IOUtils.toString(stream, "UTF-8"))
    finally:
        stream.close()
