"""Carries out replication: followers, catching up, failure detection, reassignment, scrubbing."""
