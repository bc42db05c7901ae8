"""The three ways to write to a local store, and how to let a system call fail."""

import os
import subprocess
import sys
from pathlib import Path


def start(script, *arguments):
    return subprocess.Popen(
        [sys.executable, "-c", script, *map(str, arguments)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        bufsize=1,
    )


def temporaries(store):
    folder = Path(store.url) / ".tmp"
    return sorted(folder.iterdir()) if folder.exists() else []


def fail(monkeypatch, call, number):
    """Let a call of the operating system fail."""

    def failing(*_, **__):
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, call, failing)


def write(store):
    writer = store.open_write("a/b")
    try:
        writer.write(b"hello")
        writer.close()
    finally:
        writer.discard()
