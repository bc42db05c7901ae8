"""How many bytecodes a call executes: its cost, without a clock."""

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any


def executed(run: Callable[[], object]) -> int:
    """Return how many bytecodes of Python a call executes in this thread. What C code does counts once."""
    count = 0

    def trace(frame: FrameType, event: str, _: Any) -> Any:
        nonlocal count
        if event == "call":
            frame.f_trace_lines, frame.f_trace_opcodes = False, True
        count += event == "opcode"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        run()
    finally:
        sys.settrace(before)
    return count
