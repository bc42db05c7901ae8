"""What git tracks: text that people read, and no downloads."""

import subprocess
from pathlib import Path

import pytest

pytestmark = pytest.mark.deep
ROOT = Path(__file__).parent.parent
BINARY_BYTES_MAX = 100_000


def test_no_large_binary_file_is_tracked():
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, check=True, capture_output=True, text=True).stdout
    files = [ROOT / name for name in listed.split("\0") if name]
    large = [file for file in files if file.is_file() and file.stat().st_size > BINARY_BYTES_MAX]
    assert len(files) > 100
    assert [file.name for file in large if b"\0" in file.read_bytes()] == []
