"""Rebuilds a cluster whose journals are all lost from what its nodes' folders still hold."""
