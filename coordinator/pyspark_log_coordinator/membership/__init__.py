"""Membership: what a process does to be a member of a group, and what it does for the other members."""
