"""A setting of Spark, and a profile: the settings for one way to run Spark."""

from __future__ import annotations

import msgspec


class Setting(msgspec.Struct, frozen=True, kw_only=True):
    """A line of spark-defaults.conf."""

    name: str
    value: str
    why: str
    """What the line is for, and what it gained if that was measured: full sentences."""
    example: bool = False
    """The value is an example that each installation replaces: commented out in the file, not set by `configure`."""


class Profile(msgspec.Struct, frozen=True, kw_only=True):
    """A file spark-defaults.conf."""

    name: str
    about: str
    """A fragment for the file's first line: where it is for."""
    settings: tuple[Setting, ...]
