"""Commands that are their arguments and one call: functions of a log that return documents.

@command("pyspark-log nodes list --path /data/log")
def list_(log: Log) -> Documents:
    \"\"\"List the nodes and their state.\"\"\"
    return cluster.nodes(log)
"""

from __future__ import annotations

import inspect
import sys
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, get_type_hints

from pyspark_log.cli import arguments, output
from pyspark_log.opening import open_log

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark_log.cli.output import Document, Documents


def command(
    *examples: str, empty: str = "none", records: bool = False
) -> Callable[[Callable[..., Document | Documents]], Callable[..., None]]:
    """Make a command of a function whose first parameter is `log`, and whose others are arguments.

    It gets --path, the address of the log that it opens, and --json, and prints what the function returns; `empty` and
    `records` as for `output.show`. A function that has a parameter `json` gets that too.
    """

    def make(function: Callable[..., Document | Documents]) -> Callable[..., None]:
        given = {name: each for name, each in inspect.signature(function).parameters.items() if name != "log"}
        told = SimpleNamespace(__annotations__={name: each.annotation for name, each in given.items()})
        types = get_type_hints(told, vars(sys.modules[function.__module__]), include_extras=True)
        types |= {"path": arguments.Path, "json": arguments.Json}
        defaults = {name: each.default for name, each in given.items()} | {"json": False}

        def run(path: str, *, json: bool, **options: Any) -> None:
            if "json" in given:
                options["json"] = json
            output.show(function(open_log(path), **options), json=json, empty=empty, records=records)

        made: Any = run  # typer asks for these
        made.__signature__ = inspect.Signature(
            [
                inspect.Parameter(
                    name, inspect.Parameter.KEYWORD_ONLY, default=defaults.get(name, inspect.Parameter.empty)
                ).replace(annotation=each)
                for name, each in types.items()
            ]
        )
        made.__annotations__, made.__doc__, made.__name__ = types, function.__doc__, function.__name__
        return arguments.examples(*examples)(run)

    return make
