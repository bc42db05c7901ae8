"""The values that the topic's rules work on: partitions, batches, producers, settings. Pure."""
