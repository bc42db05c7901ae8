"""The rules of replication, one file a rule: ISR, high watermark, elections, truncation. Pure."""
