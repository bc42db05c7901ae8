"""The values that the rules of a topic work on: partitions, batches, producers, settings. Pure."""
