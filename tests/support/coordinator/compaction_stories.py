"""Stories of a compacted topic: what is written, cleaned, merged and rolled, in which order."""

from collections.abc import Callable
from typing import Any

from hypothesis import strategies as st

from tests.support.coordinator.compacted_topic import CompactedTopic


@st.composite
def stories(draw, keys=(b"a", b"b", b"c", b"d", b"e", b"", None)):
    """Return steps: batches of keys, cleanings, merges and rolls, and the passing of time."""
    rows = st.lists(st.tuples(st.sampled_from(keys), st.booleans()), min_size=1, max_size=6)
    step = st.one_of(
        st.tuples(st.just("write"), rows),
        st.tuples(st.just("write"), rows),
        st.tuples(st.just("clean"), st.integers(1, 3)),
        st.tuples(st.just("merge"), st.tuples(st.integers(0, 3), st.integers(1, 3))),
        st.tuples(st.just("roll"), st.integers(1, 2)),
        st.tuples(st.just("late"), st.integers(0, 3)),
        st.tuples(st.just("sleep"), st.sampled_from([1, 600, 1200])),
    )
    return draw(st.lists(step, min_size=3, max_size=25))


def tell(topic: CompactedTopic, story: list[Any], check: Callable[[], object] = lambda: None) -> None:
    """Carry the steps of a story out, and check the topic after each of them, also with `check`."""
    late = []
    for number, (what, how) in enumerate(story):
        if what == "write":
            topic.write([(key, b"%d" % number if has_value else None) for key, has_value in how])
        elif what == "sleep":
            topic.now_ms += how
        elif what == "late":  # a process that was suspended wakes up
            if late:
                topic.swap_in(late.pop(how % len(late)))
        else:
            jobs = {"clean": topic.clean_job, "roll": topic.roll_job}
            job = topic.merge_job(*how) if what == "merge" else jobs[what](how)
            if job is not None and number % 3 == 0:
                late.append(topic.make(job))
            else:
                topic.do(job)
        topic.check()
        check()
    topic.maintain()
    topic.check()
    check()
