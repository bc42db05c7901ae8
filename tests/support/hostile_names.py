"""Names that lead out of their folder, are mistaken for others, or are too long for a file system."""

HOSTILE = {
    "empty": "",
    "the folder itself": ".",
    "the folder above": "..",
    "a path upwards": "../x",
    "a path upwards from within": "a/../../x",
    "an absolute path": "/etc/passwd",
    "a path": "a/b",
    "a path with backslashes": "..\\x",
    "a zero byte": "a\0b",
    "a line break": "a\nb",
    "a line break at the end": "a\n",
    "an escape sequence": "\x1b[2Jx",
    "one character too many": "x" * 256,
    "far too many characters": "x" * 100_000,
    "a home folder": "~root",
    "a space": "a b",
    "a percent encoding": "%2e%2e%2fx",
    "a colon": "a:b",
    "Cyrillic letters": "fl\u0456ghts",
    "full-width letters": "\uff46lights",
    "a full-width slash": "..\uff0fx",
    "a division slash": "..\u2215x",
    "a two-dot leader": "\u2025",
    "a letter and an accent": "e\u0301",
    "a zero-width space": "a\u200bb",
    "text from right to left": "a\u202eb",
    "digits of another script": "\u0663",
    "half a character": "\udcff",
}
"""None of them may be the name of a topic, a node or a member."""

TYPICAL = {
    what: HOSTILE[what]
    for what in (
        "the folder above",
        "a path upwards from within",
        "an absolute path",
        "an escape sequence",
        "one character too many",
        "Cyrillic letters",
    )
}
"""One of each kind, for doors that take long to open."""

UNPRINTABLE = {
    what: HOSTILE[what]
    for what in (
        "a zero byte",
        "a line break",
        "a line break at the end",
        "an escape sequence",
        "one character too many",
        "far too many characters",
        "a zero-width space",
        "text from right to left",
        "half a character",
    )
}
"""None of them may be the name of a group or a rack either, which are shown and never become paths."""

KEYS = {what: HOSTILE[what] for what in ("empty", "the folder itself", "the folder above", "a path upwards")} | {
    "a path upwards from within": "topics/../../x",
    "an absolute path": "/etc/passwd",
    "an empty part": "topics//x",
    "a folder": "topics/",
    "a zero byte": "topics/a\0b",
    "the store's own folder": ".tmp/x",
}
"""None of them may be the key of an object."""

ADDRESSES = {
    "empty": "",
    "a relative path": "disk",
    "a path upwards": "../x",
    "a home folder": "~root/x",
    "a zero byte": "/disk/a\0b",
    "half a character": "/disk/\udcff",
    "a host and a port": "broker:9092",
    "another machine": "file://elsewhere/disk",
    "no kind of store": "gopher://disk",
    "faults and a relative path": "chaos+disk?seed=1",
    "faults that there are not": "chaos+file:///disk?nonsense=1",
}
"""None of them may be the address of a node that a journal names."""
