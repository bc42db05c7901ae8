"""A topic to audit and to damage."""

from pyspark_log_coordinator.audit.verify import verify


def audit(topic):
    """Return the report of verify in a new process."""
    log = topic.open()
    return verify(log.topic("t"))


def finding(topic):
    """Return the only finding of verify."""
    [found] = audit(topic).findings
    return found


def said(found):
    return f"{found.what}: {found.detail}"
