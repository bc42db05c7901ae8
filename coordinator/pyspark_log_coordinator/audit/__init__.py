"""Checks of what is stored: whether every file named by the journals is there and whole, and repairs of what is not."""
