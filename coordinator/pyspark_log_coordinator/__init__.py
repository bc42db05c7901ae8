"""Decisions: the journal and the state machines that it drives. Knows nothing of Spark."""
