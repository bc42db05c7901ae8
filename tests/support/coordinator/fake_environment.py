"""An environment in which time passes only by `sleep`, and every nonce is a number."""

import itertools

from pyspark_log_coordinator.environment import Environment

_writers = itertools.count(1)


def fake_environment() -> Environment:
    """Return an environment of its own: a clock at zero, and nonces that no other one draws."""
    writer, nonces, milliseconds = next(_writers), itertools.count(1), itertools.count(1)
    seconds = 0.0

    def sleep(duration: float) -> None:
        nonlocal seconds
        seconds += duration

    return Environment(
        now_ms=lambda: next(milliseconds),
        monotonic=lambda: seconds,
        sleep=sleep,
        uniform=max,
        nonce=lambda: f"{writer:016x}{next(nonces):016x}",
    )
