"""A cluster as somebody looks at it, without saying how it is shown: as it is now, what happened, and its rows."""
