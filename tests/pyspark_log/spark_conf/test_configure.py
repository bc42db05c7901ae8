"""Profiles of settings: files, which `configure` reads; and the Python that Spark uses."""

import os
import sys
import warnings
from pathlib import Path

import pytest

import pyspark_log
from pyspark_log.spark_conf.installation import SourceNotFoundWarning
from pyspark_log.spark_conf.profiles import PROFILES
from pyspark_log_storage.errors import InvalidInput
from tests.support.bare_venv import bare_environment, bare_python

FILES = Path(__file__).parents[3] / "spark-conf"
CHECKPOINTS = "spark.sql.streaming.checkpointFileManagerClass"


class Builder:
    """What `configure` needs of a session's builder."""

    def __init__(self):
        self.settings = {}

    def config(self, name, value):
        self.settings[name] = value
        return self


@pytest.fixture
def outside_the_packages(monkeypatch, tmp_path):
    """As in a program elsewhere: neither its folder nor PYTHONPATH leads to the packages."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("PYSPARK_PYTHON")
    monkeypatch.delenv("PYSPARK_DRIVER_PYTHON")
    monkeypatch.setenv("PYTHONPATH", bare_environment().get("PYTHONPATH", ""))


def lines(profile):
    """Yield each setting of a file with the comment above it, as they are written."""
    for block in (FILES / PROFILES[profile]).read_text().split("\n\n")[1:]:
        *comment, line = block.strip().splitlines()
        yield comment, line


@pytest.mark.parametrize("profile", PROFILES)
def test_configure_sets_each_line_of_the_profiles_file_but_the_examples(profile):
    builder = Builder()
    assert pyspark_log.configure(builder, profile) is builder
    set_there = {line.split()[0]: line.split()[1] for _, line in lines(profile) if not line.startswith("#")}
    assert builder.settings == set_there
    assert builder.settings


def test_each_line_says_what_it_is_for_and_is_the_same_in_each_file():
    found = {}
    for profile in PROFILES:
        for comment, line in lines(profile):
            assert comment, line
            found.setdefault(line.split()[0], set()).add((*comment, line))
    # The checkpoints of s3 are elsewhere.
    assert [name for name, texts in found.items() if len(texts) > 1 and name != "#"] == [CHECKPOINTS]


def test_no_profile_sets_what_each_installation_chooses_and_an_unknown_one_is_refused():
    own = {"spark.master", "spark.jars.packages", "spark.submit.pyFiles"}
    for profile in set(PROFILES) - {"tests"}:
        assert not pyspark_log.configure(Builder(), profile).settings.keys() & own
    with pytest.raises(InvalidInput, match=r"no profile 'fast'; choose one of delta, local, low-latency"):
        pyspark_log.configure(Builder(), "fast")


def configured_silently():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        pyspark_log.configure(Builder())


def test_spark_looks_for_sources_in_this_programs_python_if_nothing_is_said(outside_the_packages, monkeypatch):
    monkeypatch.setenv("PATH", "")
    configured_silently()
    assert os.environ["PYSPARK_PYTHON"] == sys.executable


@pytest.mark.deep
def test_a_python_without_the_package_is_warned_of_with_what_to_do(outside_the_packages, monkeypatch, tmp_path):
    bare = bare_python(tmp_path / "venv")
    monkeypatch.setenv("PYSPARK_PYTHON", str(bare))
    with pytest.warns(SourceNotFoundWarning) as caught:
        pyspark_log.configure(Builder())
    said = str(caught[0].message)
    assert f"{str(bare)!r} (PYSPARK_PYTHON names it)" in said
    assert f"set PYSPARK_PYTHON={sys.executable}" in said
    assert caught[0].filename == __file__


@pytest.mark.deep
def test_the_drivers_python_counts_first_as_in_spark(outside_the_packages, monkeypatch):
    monkeypatch.setenv("PYSPARK_PYTHON", sys.executable)
    monkeypatch.setenv("PYSPARK_DRIVER_PYTHON", "/no/such/python")
    with pytest.warns(SourceNotFoundWarning, match="PYSPARK_DRIVER_PYTHON names it"):
        pyspark_log.configure(Builder())


@pytest.mark.deep
def test_a_python_with_the_package_is_not_warned_of(monkeypatch, tmp_path):
    other = tmp_path / "python"  # another name of it, so that it is looked into
    other.symlink_to(sys.executable)
    monkeypatch.setenv("PYSPARK_DRIVER_PYTHON", str(other))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(sys.path))
    configured_silently()
