"""Every story under tests/scenarios comes out as written."""

from pathlib import Path

import pytest

from tests.support.coordinator.scenario import play
from tests.support.coordinator.scenario_words import StoryError

STORIES = sorted((Path(__file__).parent.parent / "scenarios").glob("*.txt"))


@pytest.mark.parametrize("path", STORIES, ids=[path.stem for path in STORIES])
def test_the_story(path):
    play(path)


def test_there_are_stories():
    assert STORIES


@pytest.mark.parametrize(
    "line",
    [
        "sing",
        "topic t colour=red",
        "write 0 p0=1 colour=red -> p0 0..0",
        "write 0 p0=1 | colour=red -> p0 0..0",
        "write 0 p0=1 | run=r -> p0 0..0",
        "write 0 acks=2 p0=1 -> p0 0..0",
        "write 0 takeover p0=1 -> p0 0..0",
        "hw please -> p0=0",
        "read 0 -> nothing",
        "create t -> incarnation 1",
    ],
)
def test_a_line_that_is_not_understood_fails_the_story(tmp_path, line):
    path = tmp_path / "story.txt"
    path.write_text(f"topic t\n{line}\n")
    with pytest.raises(StoryError, match=r"story\.txt:2"):
        play(path)


@pytest.mark.parametrize(
    "line",
    ["write 0 p0=1 -> p0 0..1", "write 0 p0=1", "write 0 p0=1 -> refused BatchMismatch", "hw -> p0=1"],
)
def test_a_line_that_comes_out_otherwise_fails_the_story(tmp_path, line):
    path = tmp_path / "story.txt"
    path.write_text(f"topic t\n\n# a remark\n{line}\n")
    with pytest.raises(StoryError, match=r"story\.txt:4(.|\n)*came out as"):
        play(path)
