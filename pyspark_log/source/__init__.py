"""The source: from the log to Spark's rows."""
