"""The transaction log of a Delta table whose files are the log's Parquet segments."""
