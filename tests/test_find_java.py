"""scripts/find-java: a Java that runs Spark is found, or installed where that may be done, or asked for."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[1] / "scripts" / "find-java"
USUAL_FOLDER = "/usr/lib/jvm"
TOOLS = ("sed", "grep", "head", "mkdir", "cat", "cp", "chmod")
JAVA = """#!/bin/sh
case "$1" in
--list-modules) echo java.base@{version}; {vector} echo jdk.incubator.vector@{version} ;;
-XshowSettings*) echo "    java.home = {home}" >&2 ;;
*) echo 'openjdk version "{version}"' >&2 ;;
esac
"""


class Machine:
    """A machine of which the test says what is on it."""

    def __init__(self, folder):
        self.jvm, self.bin, self.home = folder / "jvm", folder / "bin", folder / "home"
        for each in (self.jvm, self.bin, self.home):
            each.mkdir()
        for tool in TOOLS:
            (self.bin / tool).symlink_to(shutil.which(tool))
        self.script = folder / "find-java"
        text = SCRIPT.read_text()
        assert USUAL_FOLDER in text
        # Only what the test puts there is to be found.
        for there in (USUAL_FOLDER, "/opt/java", "/opt/homebrew", "/usr/local/opt", "/usr/libexec"):
            text = text.replace(there, str(self.jvm))
        self.script.write_text(text)
        self.become(1000)

    def become(self, user):
        self.program("id", f"#!/bin/sh\necho {user}\n")

    def program(self, name, text):
        path = self.bin / name
        path.write_text(text)
        path.chmod(0o755)

    def install(self, home, version="17.0.9", *, has_vector=True):
        java = Path(home) / "bin" / "java"
        java.parent.mkdir(parents=True)
        java.write_text(JAVA.format(version=version, home=home, vector="" if has_vector else ":;exit;"))
        java.chmod(0o755)
        return str(home)

    def find(self, java_home=""):
        environment = {"PATH": str(self.bin), "HOME": str(self.home), "JAVA_HOME": java_home}
        return subprocess.run(
            ["/bin/sh", str(self.script)], env=environment, capture_output=True, text=True, check=False
        )


@pytest.fixture
def machine(tmp_path):
    return Machine(tmp_path)


def test_java_home_goes_first_and_then_java_on_the_path(machine, tmp_path):
    machine.install(machine.jvm / "java-21", "21.0.1")
    chosen, other = machine.install(tmp_path / "chosen"), machine.install(tmp_path / "somewhere")
    assert machine.find(chosen).stdout == f"{chosen}\n"
    os.symlink(f"{other}/bin/java", machine.bin / "java")
    assert machine.find().stdout == f"{other}\n"


@pytest.mark.parametrize(("version", "has_vector"), [("11.0.2", True), ("1.8.0_392", True), ("17.0.9", False)])
def test_a_java_that_does_not_run_spark_is_passed_over(machine, tmp_path, version, has_vector):
    unfit = machine.install(tmp_path / "unfit", version, has_vector=has_vector)
    good = machine.install(machine.jvm / "java-17")
    assert machine.find(unfit).stdout == f"{good}\n"


def test_where_there_is_none_it_is_asked_for(machine):
    asked = machine.find()
    assert (asked.returncode, asked.stdout) == (1, "")
    assert "Spark needs Java 17 or newer" in asked.stderr
    assert "set JAVA_HOME" in asked.stderr
    machine.become(0)
    machine.program("apt-get", "#!/bin/sh\nexit 100\n")
    assert machine.find().returncode == 1, "root cannot install one either"


def test_root_on_debian_gets_one_installed(machine, tmp_path):
    machine.become(0)
    machine.install(tmp_path / "package")
    machine.program(
        "apt-get",
        f'#!/bin/sh\ncase "$*" in install*openjdk-21*) cp -r {tmp_path}/package {machine.jvm}/java-21 ;; esac\n',
    )
    found = machine.find()
    assert (found.returncode, found.stdout) == (0, f"{machine.jvm}/java-21\n")
    assert "installing one with apt-get" in found.stderr
