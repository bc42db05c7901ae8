"""The rules of segments: what to roll and merge, when to swap the result in, what expires. Pure."""
