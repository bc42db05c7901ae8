"""The rules of segments: what to roll and merge, how to swap the result in, what expires. Pure."""
