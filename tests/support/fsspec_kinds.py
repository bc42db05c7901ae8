"""Implementations of fsspec's interface that keep their objects in this process, sound ones and others."""

import threading
from typing import ClassVar

import fsspec
from fsspec.implementations.memory import MemoryFileSystem


class Once(MemoryFileSystem):
    """Creates an object only once, also if several threads try."""

    protocol = "once"
    store: ClassVar = {}
    pseudo_dirs: ClassVar = [""]
    lock = threading.Lock()

    def __init__(self, account_key=None, **options):
        if account_key is not None:
            raise ValueError(f"it has no accounts: {account_key}")
        super().__init__(**options)

    def pipe_file(self, path, value, mode="overwrite", **options):
        with self.lock:
            super().pipe_file(path, value, mode=mode)

    def put_file(self, lpath, rpath, mode="overwrite", **options):
        with open(lpath, "rb") as file:
            self.pipe_file(rpath, file.read(), mode=mode)


class LosesAnswers(Once):
    """Writes, and says that the connection was lost: `losses` times."""

    protocol = "loses"
    losses = 0

    def pipe_file(self, path, value, mode="overwrite", **options):
        super().pipe_file(path, value, mode=mode)
        if type(self).losses:
            type(self).losses -= 1
            self.lose(path, value, mode)

    def lose(self, path, value, mode):
        raise ConnectionResetError


class RepeatsOutOfSight(LosesAnswers):
    """Repeats a call whose answer was lost by itself, and finds its own object: `losses` times."""

    protocol = "repeats"
    losses = 0

    def lose(self, path, value, mode):
        Once.pipe_file(self, path, value, mode=mode)


class Fails(Once):
    """Raises `error` for each path that ends with `ending`."""

    protocol = "fails"
    error: Exception | None = None
    ending = ""
    find = fsspec.AbstractFileSystem.find

    def fail(self, path):
        if self.error is not None and path.rstrip("/").endswith(self.ending):
            raise self.error

    def ls(self, path, detail=True, **options):
        self.fail(path)
        return super().ls(path, detail, **options)

    def cat_file(self, path, start=None, end=None, **options):
        self.fail(path)
        return super().cat_file(path, start, end, **options)

    def pipe_file(self, path, value, mode="overwrite", **options):
        self.fail(path)
        super().pipe_file(path, value, mode, **options)

    def rm_file(self, path):
        self.fail(path)
        super().rm_file(path)


KINDS = (Once, LosesAnswers, RepeatsOutOfSight, Fails)


def register():
    """Let fsspec find them by their schemes, and s3fs by a second one."""
    import s3fs

    for kind in KINDS:
        fsspec.register_implementation(kind.protocol, kind, clobber=True)
    fsspec.register_implementation("s3again", s3fs.S3FileSystem, clobber=True)


register()
