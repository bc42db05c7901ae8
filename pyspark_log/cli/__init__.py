"""The command line. It needs neither Spark nor Java.

Lists of commands import none of them (`commands`). Commands that many people call often, such as `topics list`, import
what takes long (Arrow, tables) where they need it.
"""
