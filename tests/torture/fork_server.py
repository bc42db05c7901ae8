"""A fork server: a process that has imported everything and forks workers, so that tests can kill hundreds in a minute.

    python -m tests.torture.fork_server <folder>      is the process; it reads requests on stdin

A worker runs one function of a module that can be imported. What that returns, and what it prints, is left in the
folder. The fork server and its workers are a process group of their own, which ends with the test.
"""

import contextlib
import os
import pickle
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pyspark_log_coordinator.environment import real_environment
from tests.support.coordinator.keyed_topic import KeyedClient
from tests.support.coordinator.small_topic import TopicClient, make_constants_small

DEADLINE_S = 250
"""Of a machine on which much else runs; nothing here takes long by itself."""
POLL_S = 0.0005


class Worker:
    """A process that the fork server forked."""

    def __init__(self, fork_server: "ForkServer", number: int, pid: int) -> None:
        self._fork_server = fork_server
        self._folder = fork_server.folder
        self._number = number
        self.pid = pid
        self.exit_code: int | None = None

    def signal(self, what: signal.Signals) -> None:
        """Send a signal; nothing where it has ended."""
        if self.exit_code is None:  # its process id is its own until it is waited for
            os.kill(self.pid, what)

    def kill(self) -> int:
        """SIGKILL it; return the exit code."""
        self.signal(signal.SIGKILL)
        return self.wait()

    def has_ended(self) -> bool:
        """Whether it has ended."""
        if self.exit_code is None:
            self.exit_code = self._fork_server.ask(self.pid)
        return self.exit_code is not None

    def wait(self) -> int:
        """Wait for its end, and return the exit code: below 0 the signal that killed it."""
        deadline = time.monotonic() + DEADLINE_S
        while not self.has_ended():
            assert time.monotonic() < deadline, f"the worker does not end: {self.output()}"
            time.sleep(POLL_S)
        assert self.exit_code is not None
        return self.exit_code

    def result(self) -> Any:
        """Wait for its end, and return what its function returned. Fails where that raised, or it was killed."""
        assert self.wait() == 0, f"the worker ended with {self.exit_code}: {self.output()}"
        return pickle.loads((self._folder / f"{self._number}.result").read_bytes())

    def output(self) -> str:
        """What it has printed."""
        return (self._folder / f"{self._number}.output").read_text()[-5000:]


class ForkServer:
    """The fork server, as a test sees it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._workers = 0
        self._process = subprocess.Popen(
            [sys.executable, "-m", __name__, str(folder)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,
        )

    def fork(self, function: Callable[..., Any], *arguments: Any) -> Worker:
        """Start a worker that calls `function`."""
        self._workers += 1
        return Worker(self, self._workers, self.ask((self._workers, function, arguments)))

    def ask(self, request: Any) -> Any:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        pickle.dump(request, self._process.stdin)
        self._process.stdin.flush()
        return pickle.load(self._process.stdout)

    def end(self) -> None:
        """Kill all that is left."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            with contextlib.suppress(BrokenPipeError):
                pipe.close()


class Processes:
    """Workers by name, each of which is begun anew when it was killed."""

    def __init__(self, fork_server: ForkServer, begin: dict[str, Callable[[ForkServer], Worker]]) -> None:
        """`begin` starts each of them."""
        self._fork_server = fork_server
        self._begin = begin
        self.workers = {name: start(fork_server) for name, start in begin.items()}

    def kill(self, name: str) -> None:
        assert self.workers[name].kill() == -signal.SIGKILL, self.workers[name].output()
        self.workers[name] = self._begin[name](self._fork_server)

    def check(self) -> None:
        """Hold that nobody has ended by itself."""
        for name, worker in self.workers.items():
            assert not worker.has_ended(), f"{name} ended with {worker.exit_code}: {worker.output()}"


def _serve(folder: str) -> None:
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    while True:
        try:
            request = pickle.load(sys.stdin.buffer)
        except EOFError:
            os.killpg(0, signal.SIGKILL)  # the test is gone
        if isinstance(request, int):
            answer = _look(request)
        else:
            number, function, arguments = request
            answer = os.fork()
            if answer == 0:
                _work(f"{folder}/{number}", function, arguments)
        pickle.dump(answer, answers)
        answers.flush()


def _look(pid: int) -> int | None:
    """Return the exit code of a worker that has ended."""
    found, status = os.waitpid(pid, os.WNOHANG)
    return os.waitstatus_to_exitcode(status) if found else None


def _work(name: str, function: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
    """Be a worker; never returns."""
    code = 1
    try:
        output = os.open(f"{name}.output", os.O_CREAT | os.O_WRONLY | os.O_APPEND)
        for descriptor in (1, 2):
            os.dup2(output, descriptor)
        os.close(0)
        result = pickle.dumps(function(*arguments))
        with open(f"{name}.result", "wb") as file:
            file.write(result)
        code = 0
    except BaseException:  # noqa: BLE001 -- the test is told by the exit code and the output
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def warm_up() -> None:
    """Do everything once, so that what is imported or made at its first use is there in every worker."""
    make_constants_small()
    with tempfile.TemporaryDirectory() as folder:
        client = TopicClient(f"{folder}/root", real_environment())
        client.create()
        client.fill("warm", range(20))
        client.clean_up()
        client.check("warm", 20)
        compacted = KeyedClient(f"{folder}/compacted", real_environment())
        compacted.create()
        compacted.fill("warm", range(20))
        compacted.clean_up()
        compacted.check("warm", 20)


if __name__ == "__main__":
    warm_up()
    _serve(sys.argv[1])
