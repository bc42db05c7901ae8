"""The state machine of the cluster: its nodes, the names and ids of its topics, and its journal nodes. Pure."""
