"""Consumer groups: the state machine of one group, which is pure."""
