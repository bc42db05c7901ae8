"""The topic's state machine: commits, replicas, segments and settings behind one decide and one evolve. Pure."""
