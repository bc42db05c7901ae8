"""Commands that write and print rows."""
