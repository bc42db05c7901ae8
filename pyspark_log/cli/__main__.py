"""`python -m pyspark_log.cli`: the command line where the script `pyspark-log` is not on the PATH."""

from pyspark_log.cli.main import app

app(prog_name="pyspark-log")
