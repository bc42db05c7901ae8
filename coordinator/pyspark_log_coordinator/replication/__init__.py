"""The rules of replication, one file a rule: ISR, high watermark, elections, row loss. Pure."""
