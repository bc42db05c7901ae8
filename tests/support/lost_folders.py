"""Take a folder away, as a disk that breaks does."""

import os
import shutil
import tempfile
from pathlib import Path


def lose_folder(folder: Path | str) -> None:
    """Remove a folder that threads may still write to, if it exists.

    A commit needs a quorum only, so a command can end while a thread still writes to a slower node. The folder is
    first moved away, which no such write can disturb.
    """
    if os.path.exists(folder):
        moved = tempfile.mkdtemp(prefix=".lost-", dir=Path(folder).parent)
        os.rename(folder, moved)
        shutil.rmtree(moved, ignore_errors=True)
