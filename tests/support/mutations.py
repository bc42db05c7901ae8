"""Mutations: values that have the right types and nothing else."""

import random
from typing import Any

from msgspec import inspect

NUMBERS = (0, 1, 2, 3, 64, 2**31, 2**53, 2**63 - 1, -1, -(2**63), 2**64 - 1)
TEXTS = ("", "0", "1", "2", "9", "t", "../../x", "a/b", "\0", "\x1b[2J", "ü", "x" * 300)
_BYTES = (b"", b"\xff", b"\x00" * 16, b"\xff\xfe\xfd" * 100)


def changed(value: Any, dice: random.Random) -> Any:
    """Return a tree of lists and dicts in which one value, at any depth, is another or is gone."""
    if isinstance(value, list) and value and dice.random() < 0.9:
        at = dice.randrange(len(value))
        if dice.random() < 0.1:
            return value[:at] + value[at + 1 :] if dice.random() < 0.5 else [*value, value[at]]
        return [*value[:at], changed(value[at], dice), *value[at + 1 :]]
    if isinstance(value, dict) and value and dice.random() < 0.9:
        name = dice.choice(sorted(value, key=str))
        if dice.random() < 0.1:
            return {each: kept for each, kept in value.items() if each != name}
        return {**value, name: changed(value[name], dice)}
    if isinstance(value, int) and not isinstance(value, bool) and dice.random() < 0.8:
        return dice.choice((*NUMBERS, value + 1, value - 1))
    if isinstance(value, str) and dice.random() < 0.8:
        return dice.choice(TEXTS)
    return dice.choice((*NUMBERS, *TEXTS, *_BYTES, None, True, 1.5, [], {}, [[]]))


def arbitrary(of: Any, dice: random.Random) -> Any:  # noqa: PLR0911 -- one for each kind of type
    """Return a value of a type that msgspec decodes. Most numbers are small, and most names some that there are."""
    kind = inspect.type_info(of) if not isinstance(of, inspect.Type) else of
    match kind:
        case inspect.UnionType():
            return arbitrary(dice.choice(kind.types), dice)
        case inspect.StructType():
            return kind.cls(**{each.name: _field(each, dice) for each in kind.fields})
        case inspect.IntType():
            low, high = kind.ge or 0, kind.le or 2**63 - 1
            drawn = dice.choice((0, 0, 0, 1, 1, 2, 3, 5, *NUMBERS)) if dice.random() < 0.9 else dice.randrange(100)
            return min(max(drawn, low), high)
        case inspect.FloatType():
            return dice.choice((0.0, 0.5, 1.0, -1.0, 1e300, float("inf"), float("nan")))
        case inspect.StrType():
            return dice.choice(("0", "0", "1", "2", *TEXTS))
        case inspect.BytesType():
            return dice.choice(_BYTES)
        case inspect.BoolType():
            return dice.random() < 0.5
        case inspect.NoneType():
            return None
        case inspect.LiteralType():
            return dice.choice(kind.values)
        case inspect.TupleType():
            return tuple(arbitrary(each, dice) for each in kind.item_types)
        case inspect.VarTupleType():
            return tuple(arbitrary(kind.item_type, dice) for _ in range(dice.choice((0, 1, 1, 2, 3))))
        case inspect.ListType():
            return [arbitrary(kind.item_type, dice) for _ in range(dice.choice((0, 1, 2)))]
        case inspect.DictType():
            count = dice.choice((0, 1, 2))
            return {arbitrary(kind.key_type, dice): arbitrary(kind.value_type, dice) for _ in range(count)}
    raise NotImplementedError(kind)


def _field(field: inspect.Field, dice: random.Random) -> Any:
    if field.default is not inspect.NODEFAULT and dice.random() < 0.7:
        return field.default
    return arbitrary(field.type, dice)
