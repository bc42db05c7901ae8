"""A Python without the packages, as in a venv that is not activated, or on a machine of a cluster."""

import os
import subprocess
import sys
import sysconfig
from pathlib import Path

from tests.conftest import PACKAGE_FOLDERS, WITHOUT_PANDAS


def bare_python(folder: Path) -> Path:
    """Make a venv that has what the tests' Python has, except this project's packages, and return its Python."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    # A path in a .pth is only appended: the .pth there, such as that of an editable install, is not read.
    (folder / "lib" / version / "site-packages" / "dependencies.pth").write_text(sysconfig.get_path("purelib"))
    return folder / "bin" / "python"


def environment_with_pandas() -> dict[str, str]:
    """Return the variables of this process with which programs find pandas, for tests that look for it."""
    paths = [path for path in os.environ["PYTHONPATH"].split(os.pathsep) if path != WITHOUT_PANDAS]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}


def bare_environment() -> dict[str, str]:
    """Return the variables of this process without those by which Spark and Python find the packages."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYSPARK_", "SPARK_"))}
    ours = {"", WITHOUT_PANDAS, *PACKAGE_FOLDERS}
    paths = [path for path in kept.pop("PYTHONPATH", "").split(os.pathsep) if path not in ours]
    return {**kept, **({"PYTHONPATH": os.pathsep.join(paths)} if paths else {})}
