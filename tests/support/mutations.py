"""Mutations: values that have the right types and nothing else."""

import random
from typing import Any

NUMBERS = (0, 1, 2, 3, 64, 2**31, 2**53, 2**63 - 1, -1, -(2**63), 2**64 - 1)
TEXTS = ("", "0", "1", "2", "9", "t", "../../x", "a/b", "\0", "\x1b[2J", "ü", "x" * 300)
_BYTES = (b"", b"\xff", b"\x00" * 16, b"\xff\xfe\xfd" * 100)


def changed(value: Any, dice: random.Random) -> Any:
    """Return a tree of lists and dicts in which one value, at any depth, is another, elsewhere, doubled or gone."""
    if isinstance(value, list) and value and dice.random() < 0.9:
        at = dice.randrange(len(value))
        if dice.random() < 0.15:
            rest = value[:at] + value[at + 1 :]
            return dice.choice((rest, [*value, value[at]], [value[at], *rest], [*rest, value[at]]))
        return [*value[:at], changed(value[at], dice), *value[at + 1 :]]
    if isinstance(value, dict) and value and dice.random() < 0.9:
        name = dice.choice(sorted(value, key=str))
        if dice.random() < 0.15:
            rest = {each: kept for each, kept in value.items() if each != name}
            return dice.choice((rest, {**rest, name: value[name]}, {**value, dice.choice(TEXTS): value[name]}))
        return {**value, name: changed(value[name], dice)}
    if isinstance(value, int) and not isinstance(value, bool) and dice.random() < 0.8:
        return dice.choice((*NUMBERS, value + 1, value - 1))
    if isinstance(value, str) and dice.random() < 0.8:
        return dice.choice(TEXTS)
    return dice.choice((*NUMBERS, *TEXTS, *_BYTES, None, True, 1.5, [], {}, [[]]))
