"""A catalog of Spark's whose tables have MERGE, which Auto CDC needs: no table format that is released has it there."""

import subprocess
from pathlib import Path

from tests.support import class_archive

CLASS = "org.apache.spark.sql.tests.MergeCatalog"


def make_jar(jar: Path) -> None:
    """Compile the catalog, with the compiler that is among Spark's jars."""
    compiler = [class_archive.HOME / "bin" / "spark-class", "scala.tools.nsc.Main", "-usejavacp", "-d", jar]
    subprocess.run([*compiler, Path(__file__).with_name("MergeCatalog.scala")], check=True)
