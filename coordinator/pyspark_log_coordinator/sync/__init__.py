"""Carries out replication: catch-up, failure detection, reassignment, scrubbing."""
