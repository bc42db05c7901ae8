"""The three ways to write to a local store, and how to let a system call fail."""

import os
from pathlib import Path


def temporaries(store):
    folder = Path(store.url) / ".tmp"
    return sorted(folder.iterdir()) if folder.exists() else []


def fail(monkeypatch, call, number):
    """Let a call of the operating system fail."""

    def failing(*_, **__):
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, call, failing)


def write(store, data=b"hello"):
    writer = store.open_write("a/b")
    try:
        writer.write(data)
        writer.close()
    finally:
        writer.discard()
