"""Assignors: how a group's leader shares the work among the members. Pure, and deterministic."""
