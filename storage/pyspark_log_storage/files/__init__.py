"""The files that rows are in: chunks, append files, and the index of a segment."""
