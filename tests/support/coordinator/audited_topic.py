"""A topic to audit and to damage."""

from pyspark_log_coordinator.audit.verify import verify
from pyspark_log_storage.segments import segment


def audit(topic):
    """Return the report of verify in a new process."""
    log = topic.open()
    return verify(log.topic("t"))


def finding(topic):
    """Return the only finding of verify."""
    [found] = audit(topic).findings
    return found


def flip(topic, key, position):
    data = bytearray(topic.store.read(key))
    data[position] ^= 4
    topic.store.put(key, bytes(data))


def said(found):
    return f"{found.what}: {found.detail}"


def cut_last_chunk(topic, key):
    last = segment.scan(topic.store, key)[-1].position
    topic.store.put(f"{key}.log", topic.store.read(f"{key}.log")[:last])
