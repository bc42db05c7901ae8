"""The documentation names only files, modules, events and classes that exist, and its links lead somewhere."""

import importlib.util
import os
import re
import runpy
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import get_args

import pytest

import pyspark_log
from pyspark_log_coordinator.cluster import machine as cluster
from pyspark_log_coordinator.group import machine as group
from pyspark_log_coordinator.topic import machine as topic
from pyspark_log_storage import errors
from scripts import commands_page

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
PACKAGES = [ROOT / "pyspark_log", *(ROOT / name / f"pyspark_log_{name}" for name in ("coordinator", "storage"))]
PARENTS = [ROOT, ROOT / "docs", *PACKAGES]
"""The folders at which a path in the documentation may begin."""

every_page = pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))


@cache
def anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as GitHub makes them."""
    without_programs = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
    headings = re.findall(r"^#+ (.*)", without_programs, flags=re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@cache
def source() -> str:
    return "\n".join(file.read_text() for package in PACKAGES for file in sorted(package.rglob("*.py")))


def in_backticks(page: Path, pattern: str) -> set[str]:
    return set(re.findall(rf"`({pattern})`", page.read_text()))


@every_page
def test_links_lead_to_pages_and_headings(page):
    for file, anchor in re.findall(r"\]\((?!\w+:)([^)#\s]*)#?([^)\s]*)\)", page.read_text()):
        target = (page.parent / file).resolve() if file else page
        assert target.exists(), file
        assert not anchor or anchor in anchors(target), f"{file}#{anchor}"


@every_page
def test_paths_exist(page):
    paths = in_backticks(page, r"[\w./-]+\.(?:py|toml|md|txt)|(?:\w+/)+\w*")
    missing = {path for path in paths if not any((parent / path).exists() for parent in PARENTS)}
    assert not missing


def test_each_page_is_linked_from_another():
    linked = {
        (page.parent / target).resolve()
        for page in PAGES
        for target in re.findall(r"\]\(([^)#\s]+\.md)", page.read_text())
        if "://" not in target
    }
    assert not {page for page in PAGES if page.name != "README.md"} - linked


@every_page
def test_modules_exist(page):
    for name in re.findall(r"\bpyspark_log(?:_coordinator|_storage)?(?:\.\w+)+", page.read_text()):
        package, *parts = name.split(".")
        if package == "pyspark_log" and parts[0] in pyspark_log.__all__:
            continue
        folder = next(each for each in PACKAGES if each.name == package)
        stated = parts.pop() if parts[-1][0].isupper() else ""
        path = folder.joinpath(*parts)
        assert path.is_dir() or path.with_suffix(".py").is_file(), name
        assert not stated or re.search(rf"^class {stated}\b", path.with_suffix(".py").read_text(), re.MULTILINE), name


@pytest.mark.deep
@pytest.mark.skipif(importlib.util.find_spec("mkdocs") is None, reason="mkdocs-material needs Python 3.11")
def test_a_site_is_made_of_it_without_a_warning(tmp_path):
    environment = os.environ | {"NO_MKDOCS_2_WARNING": "1"}
    command = [sys.executable, "-m", "mkdocs", "build", "--site-dir", str(tmp_path)]
    made = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert made.returncode == 0, made.stdout + made.stderr
    assert "no broker" in (tmp_path / "index.html").read_text()


def test_the_readme_is_short_and_has_what_the_package_and_its_picture_take_from_it(capsys):
    readme = (ROOT / "README.md").read_text()
    assert len(re.findall(r"\S*\w\S*", readme)) <= 800
    marks = re.findall(r'(?:end-before|start-at) = "(.+?)"', (ROOT / "pyproject.toml").read_text())
    assert [mark in readme for mark in marks] == [True, True]
    runpy.run_path(str(ROOT / "scripts" / "overview_picture.py"), run_name="__main__")
    assert capsys.readouterr().out == (ROOT / "docs" / "overview.svg").read_text()


def test_one_page_says_how_to_install_and_messages_name_the_packages():
    """There is no `pip install pyspark-log`: it is installed from a clone or a wheel."""
    texts = {page.name: page.read_text() for page in [*PAGES, *(ROOT / "examples").glob("*.py")]} | {
        "the code": source()
    }
    assert not [name for name, text in texts.items() if re.search(r"pip install '?pyspark[-_]log", text)]
    extras = dict(re.findall(r"^(\w+) = \[(.*)\]", (ROOT / "pyproject.toml").read_text(), flags=re.MULTILINE))
    rows = re.findall(r"^\| `(\w+)` \| ([^|]*) \|", (ROOT / "docs" / "install.md").read_text(), flags=re.MULTILINE)
    assert rows
    for extra, packages in rows:
        assert set(packages.split(", ")) == set(re.findall(r'"([\w-]+)', extras[extra])), extra


def test_the_tour_names_what_is_in_the_code():
    names = in_backticks(ROOT / "docs" / "architecture.md", r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*(?<!\.toml)(?<!\.py)")
    unknown = {name for name in names for part in name.split(".") if not re.search(rf"\b{part}\b", source())}
    assert not unknown


def test_the_tour_says_where_each_function_is():
    told = re.findall(r"`([\w.]+)`\s+\(`([\w/]+\.py)`\)", (ROOT / "docs" / "architecture.md").read_text())
    assert told
    for name, path in told:
        file = next(parent / path for parent in PARENTS if (parent / path).exists())
        for part in name.split("."):
            assert re.search(rf"\b(?:class|def) {part}\b", file.read_text()), f"{name} is not in {path}"


@pytest.mark.parametrize("machine", [cluster, topic, group], ids=["cluster", "topic", "group"])
def test_the_page_of_formats_names_the_module_of_each_event(machine):
    rows = re.findall(r"^- (`\w+`.*?): `([\w.]+)`$", (ROOT / "docs" / "formats.md").read_text(), re.MULTILINE)
    told = {(name, module) for names, module in rows for name in re.findall(r"`(\w+)`", names)}
    assert {(event.__struct_config__.tag, event.__module__) for event in get_args(machine.Event)} <= told


def test_the_page_of_commands_is_generated_from_the_commands():
    found = commands_page.PAGE.read_text()
    assert found == commands_page.page(found), "python -m scripts.commands_page writes it anew"


def test_each_error_has_its_row():
    rows = re.findall(r"^\| (`\w+`.*?) \|", (ROOT / "docs" / "reference" / "errors.md").read_text(), re.MULTILINE)
    told = {name for row in rows for name in re.findall(r"`(\w+)`", row)}
    classes = [each for each in vars(errors).values() if isinstance(each, type) and issubclass(each, errors.LogError)]
    assert {each.__name__ for each in classes if not any(each in other.__bases__ for other in classes)} <= told


def test_the_dollars_of_idle_clients_are_those_of_their_requests():
    page = (ROOT / "docs" / "guides" / "object-store-costs.md").read_text()
    rows = page.partition("## Idle clients")[2].partition("| --- |")[2].partition("\n\n")[0].splitlines()[1:]
    for row in rows:
        client, *cells = (each.strip() for each in row.strip("|").split("|"))
        written, read, deleted, dollars = map(float, cells)
        assert dollars == pytest.approx(30 * 24 * 60 * (written * 5e-6 + read * 0.4e-6), abs=0.005), client
        assert written + read + deleted <= 30 or client == "`node run NODE`, two nodes", client
    assert len(rows) > 5


def told_and_printed(page: str) -> Iterator[tuple[str, str]]:
    """Run the commands of a page in one shell, and yield what the page shows of each and what it printed."""
    blocks = re.findall(r"^```console\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    steps = [step.partition("\n") for block in blocks for step in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]]
    script = "\n".join(f"{command}\necho '-- end'" for command, _, _ in steps)
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    shell = subprocess.run(
        ["bash", "-c", f"exec 2>&1\n{script}"],
        env=os.environ | {"PATH": path},
        capture_output=True,
        text=True,
        timeout=300,
        check=True,
    )
    return zip((told for _, _, told in steps), shell.stdout.split("-- end\n")[:-1], strict=True)


@pytest.mark.deep
def test_the_commands_of_the_tutorial_print_what_it_shows(tmp_path):
    page = (ROOT / "docs" / "tutorial.md").read_text().replace("/tmp/tutorial", str(tmp_path))
    for told, printed in told_and_printed(page):
        assert without_chance(printed) == without_chance(told)


THREE_DISKS_OF_WHICH_ONE_WAS_REPLACED = """\
```console
$ export PYSPARK_LOG_PATH=/mnt/a/log,/mnt/b/log,/mnt/c/log
$ pyspark-log cluster create --journal-nodes $PYSPARK_LOG_PATH
$ pyspark-log topics create flights --partitions 2 --replication-factor 3
$ for row in UA:1545 AA:1141; do echo $row | pyspark-log produce flights --key-separator :; done
$ rm -r /mnt/b/log && mkdir /mnt/b/log
```
"""


@pytest.mark.deep
def test_the_commands_for_a_lost_disk_print_what_the_page_shows(tmp_path):
    page = (ROOT / "docs" / "guides" / "lost-disk.md").read_text()
    before = THREE_DISKS_OF_WHICH_ONE_WAS_REPLACED
    steps = list(told_and_printed(f"{before}{page}".replace("/mnt/", f"{tmp_path}/")))[before.count("\n$ ") :]
    assert len(steps) == page.count("\n$ ") > 3
    for told, printed in steps:
        assert without_widths(without_chance(printed)) == without_widths(without_chance(told))


def without_widths(lines: list[str]) -> list[str]:
    """The lines with columns of no width, since addresses in the test are longer."""
    return [re.sub(r" +|─+", " ", line) for line in lines]


def without_chance(text: str) -> list[str]:
    """The lines of a text without ids, times, bytes, and the random choice of nodes: leader, epoch, replicas."""
    chance = r"[0-9a-f]{32}|[\d,]+ bytes|\d+,\d{3}|[\d-]{10} [\d:.]{12}Z|\d+ +\d+ +\d+, .*"
    return [re.sub(chance, "...", line).rstrip() for line in text.splitlines()]
