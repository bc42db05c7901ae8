"""Jars of a Kafka broker and of Delta, from Maven Central: `python -m tests.servers.maven_jars kafka` fetches them.

They are kept in a folder of the repository that git ignores. What is in Maven's own repository on this machine is taken
from there. A mirror is found as Maven finds it, in ~/.m2/settings.xml; MAVEN_REPOSITORY_URL names one too.
"""

import hashlib
import os
import sys
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from xml.etree import ElementTree as ET

ROOT = Path(__file__).parent.parent.parent
FOLDER = ROOT / ".jars"
MAVEN_CENTRAL = "https://repo1.maven.org/maven2"
MAVEN_HOME = Path.home() / ".m2"
TIMEOUT_SECONDS = 60


class Unavailable(Exception):
    """The jars cannot be had."""


def jars(name: str) -> list[Path]:
    """Return the jars of the list of that name, fetched if they are not there. Raise `Unavailable`."""
    with ThreadPoolExecutor(8) as pool:
        return list(pool.map(lambda each: _fetched(*each), _listed(name)))


def _listed(name: str) -> list[tuple[str, str]]:
    """Return the SHA-256 and the path in a Maven repository of each jar of a list."""
    text = (Path(__file__).parent / f"{name}_jars.txt").read_text()
    lines = (line.split() for line in text.splitlines() if not line.startswith("#"))
    return [(checksum, path) for checksum, path in lines]


def _fetched(checksum: str, path: str) -> Path:
    jar = FOLDER / checksum[:16] / Path(path).name  # a new list leaves no old jar on the class path
    if jar.exists():
        return jar
    local = MAVEN_HOME / "repository" / path
    data = local.read_bytes() if local.exists() else b""
    if hashlib.sha256(data).hexdigest() != checksum:
        url = f"{_repository()}/{path}"
        try:
            with urllib.request.urlopen(url, timeout=TIMEOUT_SECONDS) as response:
                data = response.read()
        except OSError as error:
            raise Unavailable(f"{url}: {error}") from error
        if hashlib.sha256(data).hexdigest() != checksum:
            raise Unavailable(f"{url} is not the file that the list names")
    jar.parent.mkdir(parents=True, exist_ok=True)
    part = jar.with_suffix(f".{os.getpid()}")
    part.write_bytes(data)
    part.rename(jar)
    return jar


def _repository() -> str:
    """Return the address of Maven Central, or of its mirror."""
    named = os.environ.get("MAVEN_REPOSITORY_URL")
    if named:
        return named.rstrip("/")
    settings = MAVEN_HOME / "settings.xml"
    if settings.exists():
        for mirror in ET.parse(settings).getroot().iterfind(".//{*}mirror"):
            if set((mirror.findtext("{*}mirrorOf") or "").split(",")) & {"central", "*", "external:*"}:
                return (mirror.findtext("{*}url") or MAVEN_CENTRAL).rstrip("/")
    return MAVEN_CENTRAL


if __name__ == "__main__":
    try:
        jars(sys.argv[1])
    except Unavailable as unavailable:
        sys.exit(f"the tests of {sys.argv[1]} will be skipped: {unavailable}")
