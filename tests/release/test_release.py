"""What a release consists of, and that it can be installed. `make dist` tries more: each extra, Python and version."""

import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from packaging.version import Version

from scripts import dist_contents, typed
from tests.support.bare_venv import bare_environment, bare_python

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "reference" / "dependencies.md"

python_of_the_page = pytest.mark.skipif(sys.version_info < (3, 11), reason="the page is that of Python 3.11")


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """The wheel and the source distribution from which it was built."""
    folder = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", folder, ROOT]
    made = subprocess.run(command, capture_output=True, text=True, check=False)
    assert made.returncode == 0, made.stdout + made.stderr
    return next(folder.glob("*.whl")), next(folder.glob("*.tar.gz"))


@pytest.fixture(scope="module")
def installed(built, tmp_path_factory):
    """The Python of a venv in which pip has installed the wheel."""
    python = bare_python(tmp_path_factory.mktemp("installed") / "venv")
    options = ["--quiet", "--no-deps", "--no-index", "--ignore-installed"]
    subprocess.run([sys.executable, "-m", "pip", "--python", python, "install", *options, built[0]], check=True)
    return python


def changed_wheel(wheel, folder, change):
    """Return a copy of a wheel whose files, as a dict, a function has changed."""
    with zipfile.ZipFile(wheel) as archive:
        files = {name: archive.read(name) for name in archive.namelist()}
    change(files)
    copy = folder / wheel.name
    with zipfile.ZipFile(copy, "w") as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return copy


def test_wheel_and_sdist_have_what_they_must_and_no_more(built):
    assert dist_contents.faults(*built) == []


def test_a_wheel_without_types_with_tests_and_with_a_dead_link_is_refused(built, tmp_path):
    wheel, sdist = built
    metadata = f"pyspark_log-{dist_contents.version()}.dist-info/METADATA"

    def change(files):
        del files["pyspark_log_storage/py.typed"]
        files["tests/test_docs.py"] = b""
        files[metadata] += b"[a page](docs/page.md) and ![a picture](docs/picture.svg)\n"

    assert dist_contents.faults(changed_wheel(wheel, tmp_path, change), sdist) == [
        "the wheel has tests/test_docs.py",
        "the wheel lacks pyspark_log_storage/py.typed",
        "the description of the wheel has ](docs/page.md), which leads nowhere on an index",
        "the description of the wheel has ](docs/picture.svg), which leads nowhere on an index",
    ]


def test_the_version_is_the_newest_of_the_changelog_and_in_normal_form():
    version, _ = dist_contents.changes_of_version()
    assert version == dist_contents.version() == str(Version(version))


def test_the_installed_wheel_writes_and_reads(installed, tmp_path):
    program = ROOT / "tests" / "release" / "programs" / "core.py"
    subprocess.run([installed, program], cwd=tmp_path, env=bare_environment(), check=True)
    told = [installed, "-c", "import pyspark_log, pyspark_log_storage; print(pyspark_log.__file__)"]
    shown = subprocess.run(told, cwd=tmp_path, env=bare_environment(), check=True, stdout=subprocess.PIPE, text=True)
    assert str(installed.parent.parent) in shown.stdout


def test_a_type_checker_sees_the_types_of_all_three_packages(installed, tmp_path):
    assert typed.faults_of_mypy(installed, tmp_path) == []


@python_of_the_page
def test_the_page_of_dependencies_is_current():
    from scripts import dependencies_page

    page = PAGE.read_text()
    compared = []
    for extra in dependencies_page.extras():
        try:
            section = dependencies_page.section(extra)
        except dependencies_page.NotInstalled:  # the tests install no extra that they do not need
            assert f"## `pyspark-log[{extra}]`" in page
        else:
            assert section in page, f"not current: `make dist` writes the new page, with this part\n{section}"
            compared.append(extra)
    assert {"", "spark", "kafka", "metrics", "s3"} <= set(compared)
    assert page.startswith(dependencies_page.HEAD)
    assert page.endswith(dependencies_page.exceptions())


def test_the_page_of_dependencies_has_the_versions_of_the_requirements():
    lines = (ROOT / "requirements" / "dev.txt").read_text().splitlines()
    pins = {line.split(" ;")[0].lower().replace("_", "-") for line in lines if 'python_version < "3.11"' not in line}
    rows = re.findall(r"^\| ([\w.-]+) \| (\d\S*) \|", PAGE.read_text(), re.MULTILINE)
    assert len(rows) > 60
    assert {f"{name}=={version}" for name, version in rows} - pins == set()


@python_of_the_page
def test_a_release_tries_each_extra():
    from scripts import dependencies_page, release

    untried = [extra for extra in dependencies_page.extras() if extra and not hasattr(release.Trial, f"try_{extra}")]
    assert untried == [], "scripts/release.py needs a function for each"
