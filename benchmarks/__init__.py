"""How fast it is, beside the fastest that a Python data source can be on the same Spark."""
