"""The programs of the README and of docs/clients.md do what they say."""

import re
from pathlib import Path

import pytest

from tests.plain_log import PlainLog

ROOT = Path(__file__).parents[3]


def program(page):
    """The first program of a page that uses both clients."""
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / page).read_text(), re.DOTALL)
    return next(block for block in blocks if "import Consumer, Producer" in block)


@pytest.mark.parametrize(
    ("page", "address", "topic", "printed"),
    [
        ("docs/clients.md", "/data/log", "flights", ["0 0 b'EWR' b'UA 1545'"]),
        ("README.md", "/tmp/cities/log", "cities", ["0", "b'at' b'Wien'"]),
    ],
)
def test_a_program_of_the_documentation_runs(root, capsys, page, address, topic, printed):
    PlainLog(root).create(topic)
    exec(program(page).replace(address, str(root)), {})
    assert capsys.readouterr().out.splitlines() == printed
