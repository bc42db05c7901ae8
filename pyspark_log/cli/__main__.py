"""`python -m pyspark_log.cli`: the command line without the script `pyspark-log` on the PATH."""

from pyspark_log.cli.main import app

app(prog_name="pyspark-log")
