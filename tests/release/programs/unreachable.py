"""With an extra whose servers no package brings: its client is started, and says that nobody answers.

Arguments: what it says, and the arguments of `pyspark-log`.
"""

import subprocess
import sys
from pathlib import Path

says, *arguments = sys.argv[1:]
command = [Path(sys.executable).with_name("pyspark-log"), *arguments]
ended = subprocess.run(command, stderr=subprocess.PIPE, text=True, timeout=120, check=False)
assert ended.returncode == 1, ended
assert says in ended.stderr, ended
