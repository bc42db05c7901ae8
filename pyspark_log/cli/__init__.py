"""The command line. It needs neither Spark nor Java.

Modules that take long to import (Arrow, tables) are imported inside the commands, so that help comes at once.
"""
