"""What Spark reads by itself of a log in S3. In place of Hadoop's s3a, which is large, it gets a copy of the bucket."""

import json
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

import pyspark_log
from pyspark_log_storage.stores.storage_options import ENVIRONMENT_VARIABLE
from tests.servers.running import Server
from tests.support.command_line import CommandLine

ROWS = 3000
MOUNTED = "org.apache.hadoop.fs.viewfs.ViewFileSystemOverloadScheme"
"""A file system of Hadoop's that serves the addresses of a scheme from another one."""


class Bucket:
    """A bucket with topic t, partly in Parquet segments, and a folder as which Spark sees `s3a://<bucket>`."""

    def __init__(self, spark: SparkSession, server: Server, mirror: Path) -> None:
        self.name, self.mirror, self._server = server.new_bucket(), mirror, server
        self.path = f"s3://{self.name}/log"
        self.login = {"storage_options": json.dumps(server.options)}
        self.options = {**self.login, "nativeS3": "true"}
        spark.conf.set("fs.s3a.impl", MOUNTED)
        spark.conf.set("fs.viewfs.overload.scheme.target.file.impl", "org.apache.hadoop.fs.LocalFileSystem")
        spark.conf.set(f"fs.viewfs.mounttable.{self.name}.linkFallback", f"file://{mirror}")

    def copy(self) -> None:
        """Make the mirror as new as the bucket."""
        client = self._server.client()
        for each in client.list_objects_v2(Bucket=self.name)["Contents"]:
            path = self.mirror / each["Key"]
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(client.get_object(Bucket=self.name, Key=each["Key"])["Body"].read())

    def segments(self) -> list[Path]:
        """Return the Parquet segments in the mirror."""
        return sorted(self.mirror.rglob("*.parquet"))


def write(spark: SparkSession, bucket: Bucket, first: int) -> None:
    rows = spark.range(first, first + ROWS, numPartitions=1).selectExpr("CAST(id AS STRING) AS value")
    rows.write.format("pyspark_log").mode("append").options(topic="t", **bucket.login).save(bucket.path)


@pytest.fixture
def bucket(spark: SparkSession, ceph: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bucket:
    made = Bucket(spark, ceph, tmp_path / "mirror")
    monkeypatch.setenv(ENVIRONMENT_VARIABLE, made.login["storage_options"])
    command = CommandLine(made.path)  # type: ignore[arg-type]
    config = ["segment.format=parquet", "segment.bytes=1000"]
    command.out("topics", "create", "t", *(word for each in config for word in ("--config", each)))
    write(spark, made, 0)
    command.out("maintain", "t")
    write(spark, made, ROWS)
    monkeypatch.delenv(ENVIRONMENT_VARIABLE)
    made.copy()
    return made


def values(frame: DataFrame) -> list[int]:
    return sorted(int(row.value) for row in frame.select("value").collect())


def test_the_segments_in_s3_are_read_with_s3a_if_an_option_says_so(spark: SparkSession, bucket: Bucket) -> None:
    frame = pyspark_log.read(spark, bucket.path, "t", options=bucket.options)
    assert frame.inputFiles()
    assert {each.rpartition("/")[2] for each in frame.inputFiles()} == {each.name for each in bucket.segments()}
    assert all(each.startswith(f"s3a://{bucket.name}/log/topics/t/") for each in frame.inputFiles())
    assert values(frame) == list(range(2 * ROWS))

    by_source = pyspark_log.read(spark, bucket.path, "t", options=bucket.login)
    assert by_source.inputFiles() == []
    assert values(by_source) == list(range(2 * ROWS))
