"""Small stored objects: the envelope with its checksum, a node's marker, Kafka's checkpoints."""
