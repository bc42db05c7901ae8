"""A file to which processes append lines: what they did, or that others should stop. SIGKILL loses none."""

import os
from pathlib import Path

_open, _write = os.open, os.write  # also where a test disturbs them later


class LineFile:
    """Lines in a file. Several processes may write."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._descriptor: int | None = None

    def append(self, line: object) -> None:
        """Add a line, at once."""
        if self._descriptor is None:
            self._descriptor = _open(self._path, os.O_CREAT | os.O_WRONLY | os.O_APPEND)
        _write(self._descriptor, f"{line}\n".encode())

    def lines(self) -> list[str]:
        """Return what there is."""
        path = Path(self._path)
        return path.read_text().splitlines() if path.exists() else []
