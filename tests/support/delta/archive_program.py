"""Archives a topic into a Delta table again and again, for a test that kills it: the path, the topic, and the table."""

import datetime as dt
import sys

import pyspark_log
from tests.support.delta.delta_session import delta_session

if __name__ == "__main__":
    session = delta_session()
    while True:
        pyspark_log.archive(session, *sys.argv[1:], local_retention=dt.timedelta(0))
