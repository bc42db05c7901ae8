"""Reading: resolves positions, plans ranges, and fetches their rows from a replica that has them."""
