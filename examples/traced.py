"""One trace over a program that sends, a stream that copies, and a program that receives: the header `traceparent`.

It needs `pip install opentelemetry-sdk`. Optional argument: the folder of the log.
"""

import sys
import tempfile

from opentelemetry import propagate, trace
from opentelemetry.propagators.textmap import Getter
from opentelemetry.sdk.trace import TracerProvider
from pyspark.sql import SparkSession
from pyspark.sql.functions import col, transform
from pyspark.sql.functions import filter as only

import pyspark_log

tracer = TracerProvider().get_tracer("orders")


class HeadersOfRows(Getter):
    """Reads a propagator's fields from the headers of a row: pairs of a text and bytes."""

    def get(self, carrier, key):
        return [value.decode() for name, value in carrier if name == key and value is not None] or None

    def keys(self, carrier):
        return [name for name, _ in carrier]


def trace_headers():
    """Return the context of the current span as headers of a row."""
    headers = {}
    propagate.inject(headers)
    return headers


folder = sys.argv[1] if len(sys.argv) > 1 else tempfile.mkdtemp()
log = f"{folder}/log"
spark = pyspark_log.configure(SparkSession.builder).getOrCreate()
empty = spark.createDataFrame([], "value STRING")
for topic in ("orders", "billed"):
    empty.write.format("pyspark_log").option("topic", topic).mode("append").save(log)

with pyspark_log.Producer(log) as producer:
    with tracer.start_as_current_span("order") as order:
        producer.send("orders", b"1 ticket", headers=trace_headers()).result()
    producer.send("orders", b"no span, no header").result()

# In Spark the headers are a column, which a query passes on: all of it, or only what belongs to the trace.
rows = spark.readStream.format("pyspark_log").option("subscribe", "orders").option("startingOffsets", "earliest")
rows = rows.option("includeHeaders", "true").load(log)
of_trace = only("headers", lambda header: header.key.isin("traceparent", "tracestate"))
billed = (
    rows.select("key", "value", of_trace.alias("headers")).writeStream.format("pyspark_log").option("topic", "billed")
)
billed.option("checkpointLocation", f"{folder}/checkpoint").trigger(availableNow=True).start(log).awaitTermination()

with pyspark_log.Consumer(log) as consumer:
    consumer.assign([("billed", 0)], start="earliest")
    records = consumer.poll(timeout_ms=10_000)
received = {}
for record in records:
    context = propagate.extract(record.headers, getter=HeadersOfRows())
    with tracer.start_as_current_span("bill", context=context) as bill:
        received[record.value] = bill
assert received[b"1 ticket"].parent == trace.SpanContext(
    order.context.trace_id, order.context.span_id, is_remote=True, trace_flags=order.context.trace_flags
)
assert received[b"no span, no header"].parent is None

# The traces of a topic, with SQL.
ids = transform("headers", lambda header: header.value.cast("string").substr(4, 32))
read = spark.read.format("pyspark_log").option("subscribe", "billed").option("includeHeaders", "true").load(log)
found = {row.trace for row in read.where(col("headers").isNotNull()).select(ids[0].alias("trace")).collect()}
print(found)
assert found - {None} == {trace.format_trace_id(order.context.trace_id)}
