"""Protobuf values: a Python program writes messages, and Spark reads them as columns.

An Arrow function decodes them with the package `protobuf`, so no jar is needed. Optional
argument: the folder of the log.
"""

import sys
import tempfile

import pyarrow as pa
from google.protobuf.descriptor_pb2 import FieldDescriptorProto, FileDescriptorProto, FileDescriptorSet
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import DecodeError
from google.protobuf.message_factory import GetMessageClass
from pyspark.sql import SparkSession

import pyspark_log

COLUMNS = "sensor STRING, celsius DOUBLE"

# What `protoc --descriptor_set_out=reading.desc reading.proto` writes for
#     syntax = "proto3"; package weather;
#     message Reading { string sensor = 1; double celsius = 2; }
file = FileDescriptorProto(name="reading.proto", package="weather", syntax="proto3")
message = file.message_type.add(name="Reading")
message.field.add(name="sensor", number=1, type=FieldDescriptorProto.TYPE_STRING, label="LABEL_OPTIONAL")
message.field.add(name="celsius", number=2, type=FieldDescriptorProto.TYPE_DOUBLE, label="LABEL_OPTIONAL")
DESCRIPTORS = FileDescriptorSet(file=[file]).SerializeToString()


def message_class(descriptors, name):
    """Return the class of a message of a descriptor set."""
    pool = DescriptorPool()
    for each in FileDescriptorSet.FromString(descriptors).file:
        pool.Add(each)
    return GetMessageClass(pool.FindMessageTypeByName(name))


def decode(descriptors, name, columns):
    """Return a function for `mapInArrow` that reads the column `value` as a message. A value that is none has nulls."""

    def decode_batches(batches):
        reading = message_class(descriptors, name)  # in the worker: such a class cannot be sent to it
        for batch in batches:
            rows = []
            for value in batch.column("value").to_pylist():
                try:
                    decoded = reading.FromString(value)
                    rows.append({column: getattr(decoded, column) for column in columns})
                except DecodeError:
                    rows.append(dict.fromkeys(columns))
            yield pa.RecordBatch.from_pylist(rows, pa.schema(list(columns.items())))

    return decode_batches


folder = sys.argv[1] if len(sys.argv) > 1 else tempfile.mkdtemp()
log = f"{folder}/log"
spark = pyspark_log.configure(SparkSession.builder).getOrCreate()

empty = spark.createDataFrame([], "value STRING")
empty.write.format("pyspark_log").option("topic", "readings").mode("append").save(log)
reading = message_class(DESCRIPTORS, "weather.Reading")
with pyspark_log.Producer(log) as producer:
    for sensor, celsius in (("roof", -3.5), ("cellar", 11.0)):
        producer.send("readings", reading(sensor=sensor, celsius=celsius).SerializeToString(), sensor)
    producer.send("readings", b"\xff")

rows = spark.readStream.format("pyspark_log").option("subscribe", "readings").option("startingOffsets", "earliest")
columns = {"sensor": pa.string(), "celsius": pa.float64()}
found = {}
query = (
    rows.load(log)
    .select("value")
    .mapInArrow(decode(DESCRIPTORS, "weather.Reading", columns), COLUMNS)
    .writeStream.foreachBatch(lambda batch, _: found.update((row.sensor, row.celsius) for row in batch.collect()))
    .option("checkpointLocation", f"{folder}/checkpoint")
    .trigger(availableNow=True)
)
query.start().awaitTermination()
print(found)
assert found == {"roof": -3.5, "cellar": 11.0, None: None}
