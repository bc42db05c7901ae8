"""A process that wants a topic to be there: `python -m tests.support.coordinator.ensure_worker <root> <topic>`.

Prints the topic's id.
"""

import sys

from pyspark_log_coordinator.environment import real_environment
from pyspark_log_coordinator.log.log import Log
from pyspark_log_storage.stores.addresses import open_store

if __name__ == "__main__":
    root, topic = sys.argv[1:]
    log = Log(open_store(root), real_environment())
    log.open(create=True)
    print(log.ensure_topic(topic, 2).topic_id)
