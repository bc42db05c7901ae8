"""Jars of a Kafka broker, of Delta and of Spark's Avro functions, from Maven Central.

`python -m tests.servers.maven_jars kafka` fetches them. They are kept in a folder of the repository that git ignores.
What is in Maven's own repository on this machine is taken from there. A mirror is found as Maven finds it, in
~/.m2/settings.xml; MAVEN_REPOSITORY_URL names one too. Otherwise they come from where Spark gets its --packages, so
Java is needed.
"""

import functools
import hashlib
import os
import sys
import threading
import urllib.request
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from xml.etree import ElementTree as ET

ROOT = Path(__file__).parent.parent.parent
FOLDER = ROOT / ".jars"
MAVEN_HOME = Path.home() / ".m2"
TIMEOUT_SECONDS = 60


class Unavailable(Exception):
    """The jars cannot be had."""


def jars(name: str) -> list[Path]:
    """Return the jars of the list of that name, fetched if they are not there. Raise `Unavailable`."""
    lock = threading.Lock()

    def repository() -> str:
        with lock:  # one JVM for all
            return _repository()

    with ThreadPoolExecutor(8) as pool:
        return list(pool.map(lambda each: _fetched(*each, repository), _listed(name)))


def _listed(name: str) -> list[tuple[str, str]]:
    """Return the SHA-256 and the path in a Maven repository of each jar of a list."""
    text = (Path(__file__).parent / f"{name}_jars.txt").read_text()
    lines = (line.split() for line in text.splitlines() if not line.startswith("#"))
    return [(checksum, path) for checksum, path in lines]


def _fetched(checksum: str, path: str, repository: Callable[[], str]) -> Path:
    jar = FOLDER / checksum[:16] / Path(path).name  # a new list leaves no old jar on the class path
    if jar.exists():
        return jar
    local = MAVEN_HOME / "repository" / path
    data = local.read_bytes() if local.exists() else b""
    if hashlib.sha256(data).hexdigest() != checksum:
        url = f"{repository()}/{path}"
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


@functools.cache
def _repository() -> str:
    """Return the address of Maven Central, or of its mirror."""
    named = os.environ.get("MAVEN_REPOSITORY_URL")
    if named:
        return named.rstrip("/")
    settings = MAVEN_HOME / "settings.xml"
    if settings.exists():
        for mirror in ET.parse(settings).getroot().iterfind(".//{*}mirror"):
            of = set((mirror.findtext("{*}mirrorOf") or "").split(","))
            if of & {"central", "*", "external:*"} and (url := mirror.findtext("{*}url")):
                return url.rstrip("/")
    return _repository_of_spark()


def _repository_of_spark() -> str:
    """Return the address of Maven Central that Ivy has, with which Spark finds packages."""
    from pyspark.java_gateway import launch_gateway

    try:
        gateway = launch_gateway()
    except Exception as error:
        raise Unavailable(f"Spark's JVM does not start: {error}") from error
    try:
        return str(gateway.jvm.org.apache.ivy.plugins.resolver.IBiblioResolver.DEFAULT_M2_ROOT).rstrip("/")
    finally:
        gateway.shutdown()
        gateway.proc.stdin.close()  # ends the JVM


if __name__ == "__main__":
    try:
        jars(sys.argv[1])
    except Unavailable as unavailable:
        sys.exit(f"the tests of {sys.argv[1]} will be skipped: {unavailable}")
