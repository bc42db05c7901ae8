"""`pyspark-log ui` as a process of its own, and what a browser says about its pages."""

import json
import os
import socket
import subprocess
import time
from pathlib import Path
from typing import Any

import psutil
from playwright.sync_api import Page

from tests.support.command_line import PROGRAM

TOKEN_VARIABLE = "PYSPARK_LOG_UI_TOKEN"
HANGING_SECONDS = 60


class Served:
    """The page of one cluster. Started again, it has the same address."""

    def __init__(self, path: Path, *options: str, token: str = "") -> None:
        self.path = path
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port = free.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        self._words = [*PROGRAM, "ui", "--path", str(path), "--listen", f"127.0.0.1:{self.port}", *options]
        self._environment = os.environ | {TOKEN_VARIABLE: token}
        self.start()

    def start(self) -> None:
        self._process = subprocess.Popen(self._words, env=self._environment, stdout=subprocess.DEVNULL)
        until = time.monotonic() + HANGING_SECONDS
        while True:
            assert self._process.poll() is None, "the page has ended"
            try:
                socket.create_connection(("127.0.0.1", self.port)).close()
            except ConnectionRefusedError:
                assert time.monotonic() < until
                time.sleep(0.05)
            else:
                return

    def seconds(self) -> float:
        """Return the processor time that it has taken."""
        times = psutil.Process(self._process.pid).cpu_times()
        return times.user + times.system

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()


class Watched:
    """What a page has done that no page of ours may do."""

    def __init__(self, page: Page, url: str) -> None:
        self.faults: list[str] = []
        self.server_goes = False
        """Whether the test takes the server away, which the browser reports as errors."""
        page.on("dialog", lambda dialog: (self.faults.append(f"dialog: {dialog.message}"), dialog.dismiss()))
        page.on("pageerror", lambda error: self.faults.append(f"error: {error}"))
        page.on("console", self._said)
        page.on("request", lambda request: self._asked(request.url, url))

    def _said(self, message: Any) -> None:
        lost = "net::ERR_" in message.text
        if message.type == "error" and not (self.server_goes and lost):
            self.faults.append(f"console: {message.text}")

    def _asked(self, asked: str, url: str) -> None:
        if not asked.startswith((f"{url}/", "data:")):
            self.faults.append(f"request: {asked}")


def lines(cli: Any, topic: str, *rows: dict[str, Any]) -> None:
    """Append rows as `produce --format json` takes them."""
    cli.run("produce", topic, "--format", "json", stdin="".join(json.dumps(row) + "\n" for row in rows))
