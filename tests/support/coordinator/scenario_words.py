"""The words of a line of a story."""


class StoryError(Exception):
    """A line of a story that is not understood, or does not come out as written."""


def settings(words: list[str], *known: str, flags: tuple[str, ...] = ()) -> dict[str, str]:
    """Return the words of the form name=value, and the flags, by name."""
    given = {}
    for word in words:
        name, separator, value = word.partition("=")
        if name not in (known if separator else flags):
            raise StoryError(f"unknown word {word!r}")
        given[name] = value
    return given


def split(words: list[str], separator: str) -> list[list[str]]:
    """Return the runs of words between separators."""
    runs: list[list[str]] = [[]]
    for word in words:
        if word == separator:
            runs.append([])
        else:
            runs[-1].append(word)
    return runs


def partition_number(name: str) -> int:
    """Return the N of pN."""
    if not (name[:1] == "p" and name[1:].isdecimal()):
        raise StoryError(f"{name!r} is no partition; write p0, p1, ...")
    return int(name[1:])
