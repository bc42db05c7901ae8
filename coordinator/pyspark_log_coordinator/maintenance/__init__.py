"""Upkeep: rolls and merges segments, applies retention, removes what nobody needs, moves journals."""
