"""Commands that check what is stored, repair it, and copy it."""
