"""The page of dependencies: `python scripts/dependencies_page.py > docs/reference/dependencies.md`.

It lists what pip installs with the extras of pyproject.toml, as installed in the Python that runs it. That Python must
have the versions of requirements/dev.txt and all extras: `make dist` makes such a venv, and compares the page. A
licence that is neither permissive nor told as an exception here is an error.
"""

from __future__ import annotations

import importlib.metadata
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from importlib.metadata import Distribution
from pathlib import Path

import tomllib
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parent.parent

PERMISSIVE = {
    "0BSD",
    "Apache-2.0",
    "BSD-2-Clause",
    "BSD-3-Clause",
    "CC0-1.0",
    "ISC",
    "MIT",
    "MIT-0",
    "PSF-2.0",
    "Python-2.0",
    "Unlicense",
    "Zlib",
}
"""The SPDX names of licences that ask for a notice at most."""

EXCEPTIONS = {
    (
        "certifi",
        "MPL-2.0",
    ): "a copyleft of single files. Whoever distributes a changed certifi publishes the changed files",
}
"""Packages with another licence, and what it asks for."""

SPDX = {
    "3-Clause BSD License": "BSD-3-Clause",
    "Apache 2.0": "Apache-2.0",
    "Apache Software License": "Apache-2.0",
    "CC0": "CC0-1.0",
    "ISC License (ISCL)": "ISC",
    "MIT License": "MIT",
    "Mozilla Public License 2.0 (MPL 2.0)": "MPL-2.0",
    "Python Software Foundation License": "PSF-2.0",
}
"""How metadata that is older than SPDX names its licences."""

READ = {
    "adlfs": "BSD-3-Clause",
    "isodate": "BSD-3-Clause",
    "jinja2": "BSD-3-Clause",
    "py4j": "BSD-3-Clause",
    "pyasn1-modules": "BSD-2-Clause",
    "python-dateutil": "Apache-2.0 AND BSD-3-Clause",
    "s3fs": "BSD-3-Clause",
}
"""Licences that were read in the packages' files, because their metadata only says BSD, which is several licences."""

HEAD = """\
# Dependencies and their licences

<!-- Generated: `python scripts/dependencies_page.py > docs/reference/dependencies.md`. Do not edit. -->

pyspark_log is under the Apache License 2.0 and contains no code of the packages below. They are what pip installs
beside it with all extras (`spark`, `metrics`, `ui`, `s3`, `gcs`, `azure`, `demo`), in the versions of
`requirements/dev.txt`, with the licences that they state. Wheels may contain further libraries, such as the JARs of
Spark in pyspark, whose notices are in the wheels.

`make dist` fails if a package states another licence than here, or one that is not permissive and not named below.

| Licence | Packages |
| --- | --- |
"""


class NotInstalled(Exception):
    """A package is not installed in this Python."""


class LicenceRefused(Exception):
    """The licence of a package is neither permissive nor a known exception."""


def page() -> str:
    """Return the text of docs/reference/dependencies.md, or raise `NotInstalled` or `LicenceRefused`."""
    packages: dict[str, list[str]] = {}
    for name in sorted(closure(each for extra in extras() for each in project()[extra])):
        packages.setdefault(licence(distribution(name)), []).append(name)
    rows = [f"| {stated} | {', '.join(names)} |\n" for stated, names in sorted(packages.items())]
    asked = [f"- {name}: {stated} is {asks}.\n" for (name, stated), asks in EXCEPTIONS.items()]
    return "".join([HEAD, *rows, "\n", *asked])


def project() -> Mapping[str, list[str]]:
    """Return what pyproject.toml asks for: by extra, and as the extra "" what is always installed."""
    table = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    return {"": table["dependencies"], **table["optional-dependencies"]}


OF_DEVELOPERS = ("dev", "prove", "docs")
"""The extras for those who work on the product."""


def extras() -> Iterable[str]:
    """Return the names of the extras that users install, in the order of pyproject.toml, "" first."""
    return [name for name in project() if name not in OF_DEVELOPERS]


def closure(requirements: Iterable[str]) -> set[str]:
    """Return the names of the packages that pip installs for requirements, on this machine and this Python."""
    found: set[str] = set()
    seen: set[tuple[str, str]] = set()
    left = [(Requirement(each), "") for each in requirements]
    while left:
        requirement, extra = left.pop()
        if requirement.marker and not requirement.marker.evaluate({"extra": extra}):
            continue
        name = canonicalize_name(requirement.name)
        for wanted in ("", *requirement.extras):
            if (name, wanted) not in seen:
                seen.add((name, wanted))
                left.extend((each, wanted) for each in asked_by(name, wanted))
        if name != "pyspark-log":
            found.add(name)
    return found


def asked_by(name: str, extra: str) -> Iterator[Requirement]:
    """Yield the requirements of a package with one of its extras, or with none."""
    if name == "pyspark-log":
        yield from map(Requirement, project()[extra])
    else:
        yield from map(Requirement, distribution(name).requires or ())


def distribution(name: str) -> Distribution:
    """Return an installed package."""
    try:
        return importlib.metadata.distribution(name)
    except importlib.metadata.PackageNotFoundError:
        raise NotInstalled(
            f"{name} is not installed in this Python: run `make dist`, which installs all extras"
        ) from None


def licence(found: Distribution) -> str:
    """Return the SPDX expression that a package states, if this project accepts it."""
    name = canonicalize_name(found.metadata["Name"])
    stated = _field(found, "License-Expression") or old_style(found)
    others = set(re.findall(r"[\w.+-]+", stated)) - {"AND", "OR"} - PERMISSIVE
    if not stated or (others and (name, stated) not in EXCEPTIONS):
        raise LicenceRefused(
            f"{name} {found.version}: the licence {stated!r} is not accepted by scripts/dependencies_page.py"
        )
    return stated


def old_style(found: Distribution) -> str:
    """Return the licence of a package without SPDX expression: its old field if that is precise, or its classifiers."""
    field = _field(found, "License")
    if SPDX.get(field, field) in PERMISSIVE:
        return SPDX.get(field, field)
    classifiers = [each for each in found.metadata.get_all("Classifier") or [] if each.startswith("License ::")]
    if "License :: OSI Approved :: BSD License" in classifiers:
        return READ.get(canonicalize_name(found.metadata["Name"]), "BSD")
    return " AND ".join(sorted(SPDX.get(each.rpartition(" :: ")[2], each) for each in classifiers)) or field


def _field(found: Distribution, name: str) -> str:
    values: list[str] = found.metadata.get_all(name) or [""]
    return values[0]


if __name__ == "__main__":
    try:
        sys.stdout.write(page())
    except (NotInstalled, LicenceRefused) as error:
        sys.exit(f"dependencies_page.py: {error}")
