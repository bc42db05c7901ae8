"""Consumers that share topics as members of a group."""

import re

import pytest

from pyspark_log import Consumer, ConsumerRebalanceListener
from pyspark_log.clients import consumer_group
from pyspark_log_storage.errors import InvalidInput, InvalidName, InvalidOption, UnknownMember
from tests.support.pyspark_log.clients.group_programs import (
    COOPERATIVE,
    Committing,
    Notes,
    T,
    committed,
    fill,
)


class TestMembers:
    def test_share_the_partitions_and_each_row_is_processed_once_as_they_come_and_go(self, log, programs, strategy):
        fill(log, 20)
        total = 120

        def more(rows):
            nonlocal total
            fill(log, rows)
            total += 6 * rows

        def has_all():
            return len(programs.all_rows()) >= total

        def start():
            return programs.start(listener=Committing(), partition_assignment_strategy=strategy, max_poll_records=7)

        first = start()
        programs.poll(lambda: len(programs.all_rows()) > 30, commit=True)
        second = start()
        programs.poll(has_all, commit=True)
        more(10)
        programs.settle()
        third = start()
        programs.poll(has_all, commit=True)
        programs.settle()
        assert {len(each.assignment()) for each in (first, second, third)} == {2}
        more(10)
        programs.stop(first)
        programs.poll(has_all, commit=True)
        programs.settle()
        rows = programs.all_rows()
        assert len(rows) == len(set(rows)) == total

    def test_have_caught_up_when_they_have_joined_and_have_all_rows_not_when_a_poll_returns_none(self, log, programs):
        fill(log, 10)
        programs.configure(**{"group.initial.rebalance.delay.ms": "100"})
        consumer = programs.start(max_poll_records=25)
        polls = []
        while not consumer.caught_up():
            polls.append(len(consumer.poll(10)))
        assert polls[0] == 0
        assert sum(polls) == 60

    def test_that_work_too_long_leave_and_are_told_why_and_rejoin_with_the_next_poll(self, log, programs):
        fill(log, 1)
        notes = Notes()
        first = programs.start(listener=notes, max_poll_interval_ms=300, session_timeout_ms=60_000)
        programs.poll(lambda: len(programs.all_rows()) == 6)
        programs.running.remove(first)
        other = programs.start(max_poll_interval_ms=60_000)
        programs.poll(lambda: len(other.assignment()) == 6)
        with pytest.raises(UnknownMember, match=r"poll was not called for .* max.poll.interval.ms=300, .*max.poll.rec"):
            first.commit()
        programs.running.append(first)
        programs.settle()
        assert notes.of("lost") == [[0, 1, 2, 3, 4, 5]]
        assert committed(programs, 0) is None


class TestSubscriptions:
    def test_may_be_a_pattern_that_topics_match_later(self, log, programs):
        consumer = Consumer(log.path, **programs.options)
        programs.running.append(consumer)
        programs.rows[consumer] = []
        consumer.subscribe(pattern=re.compile("t|new.*"))
        programs.settle()
        assert consumer.subscription() == {"t"}
        log.create("news")
        log.create("old-news")
        programs.settle(partitions=7)
        assert consumer.subscription() == {"t", "news"}

    def test_end_and_what_was_read_is_the_programs_own_to_commit(self, log, programs):
        fill(log, 1)
        notes = Notes()
        consumer = programs.start(listener=notes)
        programs.poll(lambda: len(programs.all_rows()) == 6)
        consumer.unsubscribe()
        assert not programs.state.members
        assert notes.all[-1] == ("revoked", [0, 1, 2, 3, 4, 5])
        assert (consumer.assignment(), consumer.subscription()) == (set(), set())
        with pytest.raises(InvalidInput, match="call subscribe or assign first"):
            consumer.poll()
        consumer.subscribe(["t"])
        programs.poll(lambda: len(programs.all_rows()) == 12)

    def test_to_a_topic_that_is_deleted_and_created_again_read_the_new_one(self, log, programs):
        fill(log, 3)
        consumer = programs.start("t", "u")
        programs.poll(lambda: len(programs.all_rows()) == 18, commit=True)
        log.delete("t")
        programs.poll(lambda: not consumer.assignment())
        log.create("t", 2)
        fill(log, 1, partitions=range(2))
        programs.poll(lambda: len(programs.all_rows()) == 20)

    def test_to_a_topic_that_is_deleted_do_not_read_what_they_gave_up_meanwhile(self, programs, monkeypatch):
        monkeypatch.setattr(consumer_group, "FIND_AGAIN_SECONDS", 0)
        consumer = programs.start()
        programs.settle()
        consumer._group.topic_deleted("t")
        assert not consumer.assignment()
        consumer._group.revoked(T[:4])
        consumer._group.find_missing()
        assert consumer.assignment() == set(T[4:])

    def test_need_a_group_and_names_and_exclude_assign(self, log, programs):
        with Consumer(log.path) as alone:
            with pytest.raises(InvalidInput, match=r"no group to subscribe; give the option group.id"):
                alone.subscribe(["t"])
            with pytest.raises(InvalidInput, match=r"no group to commit"):
                alone.commit()
        consumer = programs.start()
        with pytest.raises(InvalidInput, match="unsubscribe first"):
            consumer.assign(T)
        with pytest.raises(InvalidInput, match="or a pattern"):
            consumer.subscribe()
        with pytest.raises(InvalidInput, match="not a valid regular expression"):
            consumer.subscribe(pattern="(")
        with pytest.raises(InvalidName):
            consumer.subscribe(["a/b"])


class TestListeners:
    def test_may_commit_seek_and_ask_but_neither_poll_nor_unsubscribe(self, log, programs):
        fill(log, 10)
        seen = []

        class Listener(ConsumerRebalanceListener):
            def on_partitions_assigned(self, assigned):
                for each in assigned:
                    consumer.seek(each, 8)

            def on_partitions_revoked(self, revoked):
                seen.append({each: consumer.position(each) for each in revoked})
                consumer.commit()
                for call in (consumer.poll, consumer.unsubscribe):
                    with pytest.raises(InvalidInput, match="a rebalance listener cannot"):
                        call()

        consumer = programs.start(listener=Listener())
        programs.poll(lambda: len(programs.all_rows()) == 12)
        programs.stop(consumer)
        assert seen == [dict.fromkeys(T, 10)]
        assert [committed(programs, number) for number in range(6)] == [10] * 6

    def test_that_fail_are_heard_by_the_program_and_the_group_goes_on(self, log, programs):
        class Listener(ConsumerRebalanceListener):
            def on_partitions_revoked(self, revoked):
                raise ZeroDivisionError

        first = programs.start(listener=Listener(), partition_assignment_strategy=COOPERATIVE)
        programs.settle()
        second = programs.start(partition_assignment_strategy=COOPERATIVE)
        with pytest.raises(ZeroDivisionError):
            programs.settle()
        programs.settle()
        assert len(first.assignment() | second.assignment()) == 6
        programs.running.remove(first)
        with pytest.raises(ZeroDivisionError):
            first.close()
        programs.poll(lambda: len(second.assignment()) == 6)

    def test_hear_of_a_loss_as_of_a_revocation_unless_they_say_otherwise(self):
        heard = []

        class Listener(ConsumerRebalanceListener):
            def on_partitions_revoked(self, revoked):
                heard.append(revoked)

        Listener().on_partitions_lost(T)
        assert heard == [T]


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"enable_auto_commit": True}, "enable.auto.commit=true needs the option group.id"),
        ({"group_instance_id": "a"}, "group.instance.id=a needs the option group.id"),
        ({"group_id": "g", "heartbeat_interval_ms": 45_000}, "must be less than session.timeout.ms=45000"),
        ({"group_id": "g", "partition_assignment_strategy": "range,best"}, "there is no assignor 'best'"),
        ({"group_id": "g", "partition_assignment_strategy": "range,range"}, "names an assignor twice"),
        ({"group_id": "g", "group_instance_id": "a/b"}, "only ASCII letters"),
        ({"group_id": "a\nb"}, "cannot be printed"),
    ],
)
def test_options_that_no_member_can_have_are_refused(log, options, match):
    with pytest.raises(InvalidOption, match=match):
        Consumer(log.path, **options)
