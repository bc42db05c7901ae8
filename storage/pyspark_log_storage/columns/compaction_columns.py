"""The columns that compaction reads: which ones are a row's key, and which deletes its key."""

from __future__ import annotations

import msgspec


def key_columns_of(setting: str) -> tuple[str, ...]:
    """Return the columns in a key.column: their names, separated by commas. Without any it is empty."""
    return tuple(each.strip() for each in setting.split(",")) if setting else ()


class CompactionColumns(msgspec.Struct, frozen=True):
    """The columns that compaction reads in the rows of a topic. Without arguments they are those of records."""

    keys: tuple[str, ...] = ("key",)
    """A row in which one of them is null has no key."""
    value: str = "value"
    """A record in which this column is null deletes its key. Empty for a typed topic."""
    delete_when: str = ""
    """A row of a typed topic in which this column is true deletes its key. If empty, none does."""

    @property
    def of_live_rows(self) -> tuple[str, ...]:
        """The columns that say which rows have a key, and which delete it."""
        return (*self.keys, *(each for each in (self.value, self.delete_when) if each))
