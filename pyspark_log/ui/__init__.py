"""A web page over the stores of a log: what its cluster, topics, rows and groups are now, and what happened when."""
