"""A disk of its own, in memory, that can be full or read-only."""

import os
import subprocess
from pathlib import Path

PAGE = 4096


class Disk:
    """A small disk of its own."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.root = str(path / "root")
        self._filler = path / "filler"

    def fill(self, left: int) -> None:
        """Leave so many bytes."""
        free = self.room()
        self._filler.write_bytes(bytes(free - left))

    def room(self) -> int:
        return os.statvfs(self.path).f_bavail * PAGE

    def free(self) -> None:
        self._filler.unlink()

    def mount(self, size: int) -> bool:
        """Mount it, with so many bytes; return whether that is possible here."""
        command = ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", self.path]
        return os.geteuid() == 0 and subprocess.run(command, check=False).returncode == 0

    def unmount(self) -> None:
        subprocess.run(["umount", "--lazy", self.path], check=True)

    def remount(self, how: str) -> None:
        """Make it "ro" or "rw"."""
        subprocess.run(["mount", "-o", f"remount,{how}", self.path], check=True)

    def make_read_only(self) -> bool:
        """Make it read-only, unless a file is being written; return whether it is."""
        command = ["mount", "-o", "remount,ro", self.path]
        return subprocess.run(command, check=False, stderr=subprocess.DEVNULL).returncode == 0
