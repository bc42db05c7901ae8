"""The reader: a streaming query that adds up the delays of each carrier, while the writer writes.

    python reader.py <log> <checkpoint> <result> <rows of a micro-batch>

The sums are in Spark's state store, below the checkpoint, so a reader that was killed continues with them. It runs
until its standard input ends, then reads the remaining rows, and exits.
"""

import json
import sys
import threading
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f


def main(log: str, checkpoint: str, result: str, batch_rows: str) -> None:
    spark = SparkSession.builder.appName("flights reader").getOrCreate()
    events = (
        spark.readStream.format("pyspark_log")
        .option("subscribe", "flights")
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", batch_rows)
        .load(log)
    )
    flight = f.from_json(f.col("value").cast("string"), "carrier STRING, dep_delay BIGINT, arr_delay BIGINT")
    delays = (
        events.select(flight.alias("flight"))
        .select("flight.*")
        .groupBy("carrier")
        .agg(
            f.count("*"),
            f.sum("dep_delay"),
            f.count("dep_delay"),
            f.sum("arr_delay"),
            f.count("arr_delay"),
        )
    )

    def publish(totals: DataFrame, batch: int) -> None:
        """Replace the result by the totals up to this batch. A repeated batch writes the same totals."""
        carriers = {carrier: [number or 0 for number in sums] for carrier, *sums in totals.collect()}
        unfinished = Path(f"{result}.unfinished")
        unfinished.write_text(json.dumps({"batch": batch, "carriers": carriers}))
        unfinished.replace(result)

    stream = delays.writeStream.outputMode("complete").foreachBatch(publish).option("checkpointLocation", checkpoint)
    query = stream.start()

    def stop_at_end_of_input() -> None:
        sys.stdin.read()
        query.stop()

    threading.Thread(target=stop_at_end_of_input, daemon=True).start()
    query.awaitTermination()
    stream.trigger(availableNow=True).start().awaitTermination()


if __name__ == "__main__":
    main(*sys.argv[1:])
