"""Interrupts code of the clients where Python does: when a call has returned, or a function is entered.

There the interpreter runs signal handlers, and the finalizers of garbage. A profile function is called at the same
places, so a test can interrupt each of them in turn instead of waiting for luck.
"""

import sys

from pyspark_log_storage.errors import LogError

_FILES = ("/pyspark_log/clients/", "/pyspark_log_coordinator/membership/latch.py", "/threading.py", "/_base.py")
_EVENTS = {"call", "return", "c_return"}


def interrupted(act, at, handler):
    """Call `act`, and `handler` at the step `at` of it. Return whether it has so many steps, and what it raised."""
    step, is_reached = 0, False

    def profile(frame, event, _):
        nonlocal step, is_reached
        if event in _EVENTS and any(part in frame.f_code.co_filename for part in _FILES):
            step += 1
            if step == at:
                sys.setprofile(None)
                is_reached = True
                handler()

    sys.setprofile(profile)
    try:
        act()
    except (LogError, KeyboardInterrupt) as error:
        return is_reached, error
    finally:
        sys.setprofile(None)
    return is_reached, None


def at_each_step(make, act, handler, stride=1):
    """Yield what `make` has made, and the error, after `act(made)` was interrupted by `handler(made)` at a step."""
    step = 1
    while True:
        made = make()
        is_reached, error = interrupted(lambda made=made: act(made), step, lambda made=made: handler(made))
        if not is_reached:
            assert error is None, error
            return
        yield made, error
        step += stride


def ctrl_c(_):
    raise KeyboardInterrupt
