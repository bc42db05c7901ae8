"""The first program of docs/reference/clients.md does what it says."""

import re
from pathlib import Path

from tests.support.plain_log import PlainLog

PAGE = Path(__file__).parents[3] / "docs" / "reference" / "clients.md"


def test_the_program_of_the_page_runs(root, capsys):
    PlainLog(root).create("flights")
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    program = next(block for block in blocks if "import Consumer, Producer" in block)
    exec(program.replace("/data/log", str(root)), {})
    assert capsys.readouterr().out.splitlines() == ["0 0 b'EWR' b'UA 1545'"]
