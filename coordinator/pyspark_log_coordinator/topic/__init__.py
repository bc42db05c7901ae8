"""The state machine of a topic: commits, replicas, segments and settings behind one decide and one evolve. Pure."""
