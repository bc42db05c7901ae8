"""The command line: topics, produce, consume and offsets. Needs neither Spark nor Java.

What is heavy (Arrow, tables) is imported inside the commands, so that help and usage errors come at once.
"""
