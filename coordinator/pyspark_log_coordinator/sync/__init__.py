"""Carries out replication: catch-up, followers, failure detection, reassignment, scrubbing."""
