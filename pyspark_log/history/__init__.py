"""History: what is older than the log's rows is written into it, and the log's older rows into a table."""
