"""Names that lead out of their folder, are mistaken for others, or are too long for a file system."""

HOSTILE = {
    "empty": "",
    "the folder above": "..",
    "a path upwards": "../x",
    "a path upwards from within": "a/../../x",
    "an absolute path": "/etc/passwd",
    "a path with backslashes": "..\\x",
    "a zero byte": "a\0b",
    "a line break at the end": "a\n",
    "an escape sequence": "\x1b[2Jx",
    "one character too many": "x" * 256,
    "far too many characters": "x" * 100_000,
    "a home folder": "~root",
    "a space": "a b",
    "a percent encoding": "%2e%2e%2fx",
    "a colon": "a:b",
    "Cyrillic letters": "fl\u0456ghts",
    "a full-width slash": "..\uff0fx",
    "a two-dot leader": "\u2025",
    "a letter and an accent": "e\u0301",
    "a zero-width space": "a\u200bb",
    "text from right to left": "a\u202eb",
    "digits of another script": "\u0663",
    "half a character": "\udcff",
}
"""None of them may be the name of a topic, a node or a member."""

TYPICAL = [
    HOSTILE[what]
    for what in (
        "a path upwards from within",
        "an absolute path",
        "an escape sequence",
        "one character too many",
        "Cyrillic letters",
    )
]
"""One of each kind, for doors that all follow the one rule."""

UNPRINTABLE = [
    HOSTILE[what] for what in ("a zero byte", "an escape sequence", "one character too many", "a zero-width space")
]
"""None of them may be the name of a group or a rack either, which are shown and never become paths."""

ADDRESSES = {
    "empty": "",
    "a relative path": "disk",
    "a path upwards": "../x",
    "a home folder": "~root/x",
    "a zero byte": "/disk/a\0b",
    "a host and a port": "broker:9092",
    "another machine": "file://elsewhere/disk",
    "no kind of store": "gopher://disk",
    "faults that there are not": "chaos+file:///disk?nonsense=1",
}
"""None of them may be the address of a node that a journal names."""
