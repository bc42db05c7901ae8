"""What must be in a wheel and in a source distribution, and what must not: `python scripts/dist_contents.py dist/*`."""

from __future__ import annotations

import email
import email.message
import re
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parent.parent
FOLDERS = {
    "pyspark_log": "pyspark_log",
    "pyspark_log/spark_conf/files": "spark-conf",
    "pyspark_log_coordinator": "coordinator/pyspark_log_coordinator",
    "pyspark_log_storage": "storage/pyspark_log_storage",
}
NOT_RELEASED = (".ci/",)
RELATIVE_LINK = r"\]\((?!\w+:)[^)]*\)|(?:src|href)=[\"'](?!\w+:)"


def faults(wheel: Path, sdist: Path) -> list[str]:
    """Return what is wrong with the two files of a release, one sentence each."""
    return [*_faults_of_wheel(wheel), *_faults_of_sdist(sdist)]


def tracked() -> set[str]:
    """Return the paths of the files that git has, or would take."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    return {name for name in listed.split("\0") if name and (ROOT / name).is_file()}


def version() -> str:
    """Return the version in the code."""
    stated = re.search(r'^__version__ = "(.*)"$', (ROOT / "pyspark_log" / "__init__.py").read_text(), re.MULTILINE)
    assert stated
    return stated[1]


def changes_of_version() -> tuple[str, str]:
    """Return version and date of the newest part of CHANGELOG.md; the date is empty before the release."""
    newest = re.search(
        r"^## \[(\d[^\]]*)\](?: - (\d{4}-\d\d-\d\d))?$", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE
    )
    return (newest[1], newest[2] or "") if newest else ("", "")


def _faults_of_wheel(wheel: Path) -> Iterator[str]:
    info = f"pyspark_log-{version()}.dist-info"
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
        own = {f"{info}/{name}" for name in ("METADATA", "WHEEL", "RECORD", "entry_points.txt", "licenses/LICENSE")}
        files = {
            name + path.removeprefix(folder)
            for name, folder in FOLDERS.items()
            for path in tracked()
            if path.startswith(f"{folder}/")
        }
        yield from _differences("the wheel", names, own | files)
        if own <= names:
            if archive.read(f"{info}/licenses/LICENSE") != (ROOT / "LICENSE").read_bytes():
                yield "the wheel's licence is not LICENSE"
            yield from _faults_of_metadata("the wheel", archive.read(f"{info}/METADATA"))


def _faults_of_sdist(sdist: Path) -> Iterator[str]:
    top = f"pyspark_log-{version()}/"
    with tarfile.open(sdist) as archive:
        names = {each.name for each in archive.getmembers() if each.isfile()}
        yield from (f"the sdist has {name}, outside its folder" for name in names if not name.startswith(top))
        inside = {name.removeprefix(top) for name in names}
        yield from _differences(
            "the sdist", inside, {"PKG-INFO"} | {p for p in tracked() if not p.startswith(NOT_RELEASED)}
        )
        if "PKG-INFO" in inside and (stored := archive.extractfile(f"{top}PKG-INFO")):
            yield from _faults_of_metadata("the sdist", stored.read())


def _differences(what: str, names: set[str], wanted: set[str]) -> Iterator[str]:
    yield from (f"{what} has {name}" for name in sorted(names - wanted))
    yield from (f"{what} lacks {name}" for name in sorted(wanted - names))


def _faults_of_metadata(what: str, stored: bytes) -> Iterator[str]:
    metadata: email.message.Message = email.message_from_bytes(stored)
    wanted = {
        "Name": "pyspark-log",
        "Version": version(),
        "License-Expression": "Apache-2.0",
        "License-File": "LICENSE",
        "Requires-Python": ">=3.10",
        "Description-Content-Type": "text/markdown",
    }
    for field, value in wanted.items():
        if metadata[field] != value:
            yield f"{what} has the {field} {metadata[field]}, not {value}"
    description = bytes(metadata.get_payload(decode=True)).decode()
    for link in re.findall(RELATIVE_LINK, re.sub(r"^```.*?^```", "", description, flags=re.MULTILINE | re.DOTALL)):
        yield f"the description of {what} has {link}, which leads nowhere on an index"
    for title in ("# pyspark_log", "## A first program", "## Comparison"):
        if not re.search(f"^{title}$", description, re.MULTILINE):
            yield f"the description of {what} lacks the heading {title}"


if __name__ == "__main__":
    found = faults(*sorted(map(Path, sys.argv[1:]), key=lambda path: path.suffix, reverse=True))
    sys.exit("\n".join(found))
