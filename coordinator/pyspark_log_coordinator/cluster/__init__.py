"""The cluster's state machine: its nodes, the names and ids of topics, and where the journals live. Pure."""
