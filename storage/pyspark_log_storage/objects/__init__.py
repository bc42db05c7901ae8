"""Small stored objects: the envelope with its checksum, and a node's marker."""
