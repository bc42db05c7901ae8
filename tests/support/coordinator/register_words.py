"""The model of registers in words, for the story of a violation."""

from __future__ import annotations

from pyspark_log_coordinator.journal.paxos import NIL, Attempt, Register, Task


def name_of(register: Register) -> str:
    return f"{'claim' if register.is_claim else 'vote'} {register.ballot}"


def words_of(found: object) -> str:
    assert isinstance(found, list | frozenset)
    return " and ".join("empty" if each is None else "nil" if each == NIL else each.decode() for each in found)


def goal_of(attempt: Attempt) -> str:
    match attempt.task:
        case Task.DONE:
            return "its end: " + (
                "nothing decided" if attempt.value is None else f"{words_of([attempt.value])} is decided"
            )
        case Task.FILL:
            return f"FILL {attempt.ballot} with {words_of([attempt.value])}"
        case _:
            return f"{attempt.task.name} {attempt.ballot}"
