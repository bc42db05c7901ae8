"""A browser, and pages of `pyspark-log ui`: each test's page ran nothing, reported no error and asked no other host."""

import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect, sync_playwright

from tests.browser.served import Served, Watched

INSTALL = Path(__file__).parents[2] / "scripts" / "install-chromium"

expect.set_options(timeout=20_000)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Chromium, which is installed if it may be."""
    found = subprocess.run([INSTALL], check=False, capture_output=True, text=True)
    if found.returncode:
        pytest.skip(found.stderr.strip())
    program = found.stdout.strip()
    with sync_playwright() as playwright:
        # A container may give no rights to the sandbox, and little memory to /dev/shm.
        started = playwright.chromium.launch(executable_path=program, args=["--no-sandbox", "--disable-dev-shm-usage"])
        yield started
        started.close()


@pytest.fixture
def serve() -> Iterator[Callable[..., Served]]:
    """Starts pages, which end with the test."""
    started: list[Served] = []

    def serve(path: Path, *options: str, token: str = "") -> Served:
        started.append(Served(path, *options, token=token))
        return started[-1]

    yield serve
    for each in started:
        each.kill()


@pytest.fixture
def visit(browser: Browser) -> Iterator[Callable[..., Page]]:
    """Opens a page of a served cluster in a browser without a past."""
    watched: list[Watched] = []
    contexts = []

    def visit(served: Served, address: str = "/", *, server_goes: bool = False, **settings: object) -> Page:
        context = browser.new_context(base_url=served.url, **settings)
        contexts.append(context)
        page = context.new_page()
        watched.append(Watched(page, served.url))
        watched[-1].server_goes = server_goes
        page.goto(address)
        return page

    yield visit
    for each in contexts:
        each.close()
    assert [fault for each in watched for fault in each.faults] == []
