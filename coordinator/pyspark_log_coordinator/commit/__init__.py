"""Commits: makes staged batches part of the log, and does a little maintenance with each of them."""
