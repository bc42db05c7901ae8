"""History: older data is written into the log (backfill), and the log's older rows into a table (archive)."""
