"""What open pages cost: processor time of the server, and of the main thread of each tab."""

import threading
import time

from playwright.sync_api import expect

from tests.support.plain_log import PlainLog

TABS = 12
PARTITIONS = 200
SECONDS = 20
SERVER_SHARE_MAX = 0.15
"""Of one core."""
TAB_SHARE_MAX = 0.10
"""Of its main thread."""


def spent(session):
    """Return the processor time that a tab's main thread has taken (seconds)."""
    found = session.send("Performance.getMetrics")["metrics"]
    return next(each["value"] for each in found if each["name"] == "TaskDuration")


def test_many_tabs_of_a_busy_topic_take_little_of_the_server_and_of_themselves(tmp_path, serve, browser):
    log = PlainLog(tmp_path / "log")
    log.create("busy", PARTITIONS)
    served = serve(log.path)
    context = browser.new_context(base_url=served.url)
    tabs = [context.new_page() for _ in range(TABS)]
    sessions = [context.new_cdp_session(each) for each in tabs]
    for tab, session in zip(tabs, sessions, strict=True):
        session.send("Performance.enable", {"timeDomain": "threadTicks"})
        tab.goto("/topics/busy")
    has_ended = threading.Event()

    def write():
        while not has_ended.wait(0.1):
            log.append("busy", {number: [b"x"] for number in range(PARTITIONS)})

    writer = threading.Thread(target=write)
    writer.start()
    try:
        rows = [tab.locator("main .facts dd").nth(1) for tab in tabs]
        for each in rows:
            expect(each).not_to_have_text("0")
        before = [served.seconds(), *map(spent, sessions)], [each.inner_text() for each in rows]
        begun = time.monotonic()
        tabs[0].wait_for_timeout(SECONDS * 1000)
        for each, shown in zip(rows, before[1], strict=True):
            expect(each).not_to_have_text(shown)
        after, elapsed = [served.seconds(), *map(spent, sessions)], time.monotonic() - begun
    finally:
        has_ended.set()
        writer.join()
        context.close()
    server, *shares = ((now - then) / elapsed for then, now in zip(before[0], after, strict=True))
    assert all(0 < each <= TAB_SHARE_MAX for each in shares), shares
    assert 0 < server <= SERVER_SHARE_MAX, server
