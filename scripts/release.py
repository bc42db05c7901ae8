"""Build a release into dist/ and try it as its users will: `make dist`. Nothing is uploaded.

The work tree must be clean, and the newest part of the changelog dated. The wheel is built from the sdist, and once
more from the work tree, byte for byte the same. Then fresh venvs install it, one for each extra, one for each Python
of the classifiers, and one with the lowest versions that pyproject.toml allows; a program runs in each. Type checkers
see the types of the installed wheel, and the page of dependencies is what was installed. A Python that the machine
lacks is skipped: the last lines name what was tried, and what was not.
"""

from __future__ import annotations

import json
import logging
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

import tomllib

sys.path.insert(0, str(Path(__file__).parent.parent))

import boto3
from moto.server import ThreadedMotoServer
from packaging.requirements import Requirement

from scripts import dependencies_page, dist_contents, typed

ROOT = dist_contents.ROOT
DIST = ROOT / "dist"
PROGRAMS = ROOT / "tests" / "release" / "programs"
LOCK = ROOT / "requirements" / "dev.txt"
LOWEST_PYTHON = "3.10"
PAGE_PYTHON = "3.11"
NOBODY = "127.0.0.1:9"
OPTIONS = "PYSPARK_LOG_STORAGE_OPTIONS"


def main() -> None:
    """Do all steps; the first that fails ends the program."""
    check_tree()
    wheel = build()
    with tempfile.TemporaryDirectory() as folder:
        os.environ["UV_CACHE_DIR"] = str(Path(folder) / "cache")  # what is built for the venvs is removed with them
        trial = Trial(wheel, Path(folder))
        trial.build_pyspark()
        trial.try_extras()
        trial.try_versions()
        trial.check_types()
        trial.check_page()
    print(f"{wheel.name} and its sdist are in {DIST}")
    print(*(f"tried: {each}" for each in trial.tried), *(f"NOT tried: {each}" for each in trial.skipped), sep="\n")


def say(step: str) -> None:
    """Print what begins."""
    print(f"-- {step}", flush=True)


def run(*command: str | Path, env: Mapping[str, str] | None = None, cwd: Path | None = None) -> None:
    """Run a command; a failing one ends the program."""
    ended = subprocess.run(command, env=env, cwd=cwd, check=False)
    if ended.returncode:
        sys.exit(f"release.py: exit code {ended.returncode} of {' '.join(map(str, command))}")


def classified() -> list[str]:
    """Return the versions of Python that the classifiers of pyproject.toml promise."""
    classifiers = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["classifiers"]
    versions = (each.removeprefix("Programming Language :: Python :: ") for each in classifiers)
    return [version for version in versions if version.startswith("3.")]


def lowest() -> list[str]:
    """Return the lowest versions that pyproject.toml allows, as pins: to uv, what a wheel needs is never direct."""
    extras = dependencies_page.project().items()
    needed = [
        Requirement(each) for extra, asked in extras if extra not in dependencies_page.OF_DEVELOPERS for each in asked
    ]
    return [f"{each.name}=={bound.version}" for each in needed for bound in each.specifier if bound.operator == ">="]


def found_python(version: str) -> str | None:
    """Return the path of a Python of this minor version that runs, or None: a shim on the path may run nothing."""
    command = [f"python{version}", "-c", "import sys; print(sys.executable)"]
    try:
        ended = subprocess.run(command, check=False, capture_output=True, text=True)
    except FileNotFoundError:
        return None
    return ended.stdout.strip() if ended.returncode == 0 else None


def check_tree() -> None:
    """Check that what is built is what is committed, and that the changelog has its version and a date."""
    say("the work tree")
    changed = subprocess.run(
        ["git", "status", "--porcelain"], cwd=ROOT, check=True, capture_output=True, text=True
    ).stdout
    if changed:
        sys.exit(f"release.py: commit or remove these first:\n{changed}")
    version, date = dist_contents.changes_of_version()
    is_development = ".dev" in dist_contents.version()  # its changes are in the part [Unreleased]
    if not is_development and (version != dist_contents.version() or not date):
        sys.exit(f"release.py: CHANGELOG.md must begin with a dated part on {dist_contents.version()}")


def build() -> Path:
    """Build sdist and wheel into dist/, check them, and return the wheel."""
    say("building")
    shutil.rmtree(DIST, ignore_errors=True)
    run(sys.executable, "-m", "build", "--no-isolation", "--outdir", DIST, ROOT)
    (wheel,), (sdist,) = DIST.glob("*.whl"), DIST.glob("*.tar.gz")
    with tempfile.TemporaryDirectory() as again:
        run(sys.executable, "-m", "build", "--no-isolation", "--outdir", again, "--wheel", ROOT)
        run(sys.executable, "-m", "build", "--no-isolation", "--outdir", again, "--sdist", ROOT)
        for file in (wheel, sdist):
            if file.read_bytes() != (Path(again) / file.name).read_bytes():
                sys.exit(f"release.py: {file.name} differs if it is built again")
    if found := dist_contents.faults(wheel, sdist):
        sys.exit("\n".join(found))
    run(sys.executable, "-m", "twine", "check", "--strict", wheel, sdist)
    return wheel


class Trial:
    """The venvs that install a wheel, in one folder, and what runs in them."""

    def __init__(self, wheel: Path, folder: Path) -> None:
        self.wheel, self.folder = wheel, folder
        self.wheels = folder / "wheels"
        self.extras = [extra for extra in dependencies_page.extras() if extra]
        self.everything = f"{wheel}[{','.join(self.extras)}]"
        self.tried: list[str] = []
        self.skipped: list[str] = []

    def build_pyspark(self) -> None:
        """Build Spark's wheel, which PyPI lacks, once: each venv would build one, of half a gigabyte."""
        say("the wheel of pyspark")
        wheel = ("-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", self.wheels)
        run(sys.executable, *wheel, "--constraint", LOCK, "pyspark")

    def try_extras(self) -> None:
        """Install the wheel with pip alone, and with each extra, in the versions of the tests."""
        say("pyspark-log")
        python = self.folder / "pip" / "bin" / "python"
        run(sys.executable, "-m", "venv", self.folder / "pip")
        run(python, "-m", "pip", "install", "--quiet", "--constraint", LOCK, self.wheel)
        self.execute(python, PROGRAMS / "core.py")
        run(python, "-c", "import importlib.util; assert importlib.util.find_spec('pyspark') is None")
        for extra in self.extras:
            say(f"pyspark-log[{extra}]")
            python = self.install(extra, f"{self.wheel}[{extra}]", "--constraint", LOCK)
            getattr(self, f"try_{extra}")(python)

    def try_spark(self, python: Path) -> None:
        """Run the first program of the README."""
        self.execute(python, ROOT / "examples" / "first_program.py")

    def try_demo(self, python: Path) -> None:
        """Run the demo, for a part of the year."""
        self.execute(python, ROOT / "examples" / "flights_demo.py", "--flights", "20000")

    def try_metrics(self, python: Path) -> None:
        """Serve metrics, and get them."""
        self.execute(python, PROGRAMS / "served.py", "metrics", "/metrics", "pyspark_log_up 1")

    def try_ui(self, python: Path) -> None:
        """Serve the page, and get it."""
        self.execute(python, PROGRAMS / "served.py", "ui", "/topics", "cities")

    def try_gcs(self, python: Path) -> None:
        """Look into a bucket whose server does not answer."""
        self.look(python, "gs://bucket/log", {"token": "anon", "endpoint_url": f"http://{NOBODY}"})

    def try_azure(self, python: Path) -> None:
        """Look into a container whose server does not answer."""
        address = f"DefaultEndpointsProtocol=http;AccountName=a;AccountKey=a2V5;BlobEndpoint=http://{NOBODY}/a;"
        self.look(python, "abfs://container/log", {"account_name": "a", "connection_string": address})

    def look(self, python: Path, log: str, options: Mapping[str, str]) -> None:
        """Look into a log in an object store whose server does not answer: the client says so."""
        arguments = ("the server cannot be reached", "topics", "list", "--path", log)
        self.execute(python, PROGRAMS / "unreachable.py", *arguments, env={OPTIONS: json.dumps(options)})

    def try_s3(self, python: Path) -> None:
        """Write and read in a bucket of moto's."""
        logging.getLogger("werkzeug").setLevel(logging.ERROR)  # or each request is a line
        server = ThreadedMotoServer(port=0, verbose=False)
        server.start()
        endpoint = "http://{}:{}".format(*server.get_host_and_port())
        options = {"key": "moto", "secret": "moto", "endpoint_url": endpoint}
        login = {"aws_access_key_id": "moto", "aws_secret_access_key": "moto", "region_name": "us-east-1"}
        boto3.client("s3", endpoint_url=endpoint, **login).create_bucket(Bucket="bucket")
        folder = f"s3://bucket/{python.parents[1].name}"  # all servers of this process have the same buckets
        self.execute(python, PROGRAMS / "s3.py", folder, env={OPTIONS: json.dumps(options)})
        server.stop()

    def try_versions(self) -> None:
        """Install the newest versions on each Python of the classifiers, and the lowest that pyproject.toml allows."""
        for version in classified():
            if python := self.begin(f"all extras in their newest versions, on Python {version}", version):
                self.try_all(self.install(version, self.everything, python=python))
        if python := self.begin("all extras in the lowest versions of pyproject.toml", LOWEST_PYTHON):
            self.try_all(self.install("lowest", self.everything, *lowest(), python=python))

    def try_all(self, python: Path) -> None:
        """Run the program of each extra but the demo, which is Spark again."""
        for extra in self.extras:
            if extra != "demo":
                getattr(self, f"try_{extra}")(python)
        self.execute(python, PROGRAMS / "core.py")

    def check_types(self) -> None:
        """Check that mypy and pyright see the types of the installed wheel, from another folder."""
        say("types")
        python = self.folder / "spark" / "bin" / "python"
        if found := typed.faults_of_mypy(python, self.folder) + typed.faults_of_pyright(python, self.folder):
            sys.exit("\n".join(found))

    def check_page(self) -> None:
        """Check docs/reference/dependencies.md against what is installed with all extras."""
        if not (found := self.begin("licences", PAGE_PYTHON)):
            return
        python = self.install("licences", self.everything, "packaging", "--constraint", LOCK, python=found)
        script = ROOT / "scripts" / "dependencies_page.py"
        page = subprocess.run([python, script], check=False, stdout=subprocess.PIPE, text=True)
        if page.returncode:
            sys.exit(page.returncode)
        if page.stdout != (ROOT / "docs" / "reference" / "dependencies.md").read_text():
            (DIST / "dependencies.md").write_text(page.stdout)
            sys.exit("release.py: docs/reference/dependencies.md is not current; copy dist/dependencies.md to it")

    def begin(self, step: str, version: str) -> str | None:
        """Return the Python of a step, or None if the machine lacks it, and remember which it was for the summary."""
        python = found_python(version)
        if python:
            say(step)
            self.tried.append(f"{step} ({python})")
        else:
            self.skipped.append(f"{step}: python{version} is not on the path, or does not run")
        return python

    def install(self, name: str, *arguments: str | Path, python: str = sys.executable) -> Path:
        """Make a venv, install into it, and return its Python."""
        made = self.folder / name / "bin" / "python"
        run(sys.executable, "-m", "uv", "venv", "--quiet", "--no-python-downloads", "--python", python, made.parents[1])
        install = ("-m", "uv", "pip", "install", "--quiet", "--python", made, "--find-links", self.wheels)
        run(sys.executable, *install, *arguments, cwd=self.folder)
        return made

    def execute(self, python: Path, program: Path, *arguments: str, env: Mapping[str, str] | None = None) -> None:
        """Run a program in a venv, outside the repository, without this shell's settings of Python and Spark."""
        hidden = ("PYTHON", "PYSPARK", "SPARK")
        kept = {name: value for name, value in os.environ.items() if not name.startswith(hidden)}
        run(python, program, *arguments, env={**kept, **(env or {})}, cwd=self.folder)


if __name__ == "__main__":
    main()
