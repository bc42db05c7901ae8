"""Several users of one log on a local disk, as docs/guides/deployment.md sets up their rights: setgid and umask 002."""

import multiprocessing
import os
import shutil
import tempfile
from pathlib import Path

import pytest

from tests.support.command_line import CommandLine

pytestmark = pytest.mark.deep
GROUP = 60_000
FIRST, SECOND, STRANGER = 60_001, 60_002, 60_003


@pytest.fixture
def folder():
    """A folder that the group may write to, and that is not below pytest's own, which only its user may enter."""
    if os.geteuid() != 0:
        pytest.skip("only root may become other users")
    path = Path(tempfile.mkdtemp())
    os.chown(path, 0, GROUP)
    path.chmod(0o2770)
    yield path
    shutil.rmtree(path)


def run_as(user, group, folder, *words, stdin=""):
    """Run a command as another user; return its exit code and what it prints.

    In a forked process, which has imported all that it needs: another user may not be able to read the interpreter.
    """
    there, here = multiprocessing.Pipe()

    def child():
        os.setgroups([])
        os.setgid(group)
        os.setuid(user)
        os.umask(0o002)
        done = CommandLine(folder / "log").run(*words, stdin=stdin, code=None)
        here.send((done.exit_code, done.stdout, done.stderr))

    process = multiprocessing.get_context("fork").Process(target=child, daemon=True)
    process.start()
    assert there.poll(60)
    process.join()
    return there.recv()


STORY = (
    (FIRST, ("topics", "create", "t", "--config", "file.delete.delay.ms=0"), ""),
    (SECOND, ("produce", "t"), "b\n"),
    (FIRST, ("produce", "t"), "a\n"),
    (SECOND, ("delete-records", "t", "--partition", "0", "--before", "1", "--yes"), ""),
    (FIRST, ("maintain",), ""),
    (SECOND, ("topics", "create", "u"), ""),
    (SECOND, ("maintain",), ""),
    (FIRST, ("consume", "t"), ""),
)


def test_users_of_one_group_share_a_log_and_others_are_refused(folder, tmp_path):
    for _, words, stdin in STORY:
        CommandLine(tmp_path / "log").run(*words, stdin=stdin)  # imports
    printed = ""
    for user, words, stdin in STORY:
        code, printed, errors = run_as(user, GROUP, folder, *words, stdin=stdin)
        assert code == 0, (words, errors)
    assert printed == "a\n"
    assert {path.stat().st_gid for path in folder.rglob("*")} == {GROUP}
    assert {path.stat().st_uid for path in folder.rglob("*")} == {FIRST, SECOND}
    code, _, errors = run_as(STRANGER, STRANGER, folder, "consume", "t")
    assert code == 1
    assert "permission is denied" in errors
