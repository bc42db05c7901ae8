"""Small stored objects: the envelope with its checksum, a journal's spares, a node's marker, Kafka's checkpoints."""
