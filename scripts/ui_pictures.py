"""Takes the pictures of the page for the docs from a real run: `python scripts/ui_pictures.py`, into docs/pictures/.

Three disks, two topics, a group, and a disk that is away for a while. Needs the packages of `make .venv` and Chromium.
"""

from __future__ import annotations

import contextlib
import json
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

from playwright.sync_api import sync_playwright

if TYPE_CHECKING:
    from collections.abc import Iterator

PROGRAM = [sys.executable, "-m", "pyspark_log.cli"]
PICTURES = Path(__file__).parent.parent / "docs" / "pictures"
SIZE = {"width": 1280, "height": 760}


def run(log: Path, *words: str, rows: str = "", may_fail: bool = False) -> None:
    """Run a command of `pyspark-log`. While a disk is away some say so, and exit with 1."""
    subprocess.run(
        [*PROGRAM, *words, "--path", str(log)], input=rows, text=True, check=not may_fail, capture_output=True
    )


def flights(first: int, count: int) -> str:
    """Return rows as JSON lines."""
    carriers, airports = ("UA", "AA", "B6", "DL"), ("EWR", "JFK", "LGA")
    rows = []
    for number in range(first, first + count):
        value = {"flight": number, "origin": airports[number % 3], "delay": number * 7 % 90}
        rows.append({"key": carriers[number % 4], "value": value})
    return "".join(json.dumps(each) + "\n" for each in rows)


def story(log: Path, folder: Path) -> None:
    """Let things happen: writes, a roll, a lost disk and its return."""
    run(log, "topics", "create", "flights", "--partitions", "6")
    for number in (1, 2):
        run(log, "nodes", "add", str(folder / f"disk{number}"))
    rolled = ("--config", "flush.messages=200", "--config", "segment.format=parquet")
    run(log, "topics", "create", "arrivals", "--partitions", "6", "--replication-factor", "3", *rolled)
    run(log, "topics", "create", "clicks", "--partitions", "3", "--replication-factor", "3")
    for part in range(8):
        run(log, "produce", "arrivals", "--format", "json", rows=flights(part * 500, 500))
        run(log, "produce", "flights", "--format", "json", rows=flights(part * 300, 300))
        run(log, "consume", "arrivals", "--group", "board", "--max-messages", "350")
        run(log, "maintain", "--now", may_fail=True)
        if part == 3:  # noqa: PLR2004 -- in the middle
            shutil.move(folder / "disk2", folder / "away")
            for first in (9000, 9100):
                run(log, "produce", "arrivals", "--format", "json", rows=flights(first, 100), may_fail=True)
                time.sleep(5)
        if part == 5:  # noqa: PLR2004 -- later
            shutil.move(folder / "away", folder / "disk2")
            run(log, "maintain")
    run(log, "topics", "alter", "arrivals", "--config", "retention.ms=86400000")


@contextlib.contextmanager
def served(log: Path) -> Iterator[str]:
    """Serve the page of a log; yield its address."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with subprocess.Popen([*PROGRAM, "ui", "--path", str(log), "--listen", f"127.0.0.1:{port}"]) as process:
        try:
            while True:
                with contextlib.suppress(ConnectionRefusedError):
                    socket.create_connection(("127.0.0.1", port)).close()
                    break
                time.sleep(0.1)
            yield f"http://127.0.0.1:{port}"
        finally:
            process.terminate()


def main() -> None:
    """Make the pictures."""
    browser_program = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))))
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "log"
        story(log, Path(folder))
        with served(log) as url, sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path=browser_program, args=["--no-sandbox"])
            for name, address, theme in (
                ("overview", "/", "light"),
                ("topic", "/topics/arrivals", "light"),
                ("history", "/history", "dark"),
                ("rows", "/topics/arrivals/rows?value_has=JFK", "dark"),
            ):
                page = browser.new_page(viewport=SIZE, color_scheme=theme)
                page.goto(url + address)
                page.wait_for_timeout(2500)
                page.screenshot(path=PICTURES / f"ui-{name}.png")
                page.close()
            browser.close()


if __name__ == "__main__":
    main()
