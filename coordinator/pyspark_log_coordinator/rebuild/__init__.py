"""Rebuilds a cluster from its nodes' folders, after every journal was lost."""
