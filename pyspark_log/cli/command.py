"""Commands that are their arguments and one call: functions that return documents.

@command("pyspark-log nodes list --path /data/log")
def list_(log: Log) -> Documents:
    \"\"\"List the nodes and their state.\"\"\"
    return cluster.nodes(log)
"""

from __future__ import annotations

import inspect
import sys
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, NamedTuple, get_type_hints

import typer

from pyspark_log.cli import arguments, output
from pyspark_log.opening import open_log

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pyspark_log.cli.output import Document, Documents


class Result(NamedTuple):
    """What a command returns if its documents do not say everything."""

    documents: Document | Documents
    errors: Sequence[str] = ()
    """What went wrong. The exit code is then 1."""
    text: Document | Documents | str | None = None
    """What people see in place of the documents; a text as it is."""
    empty: str = "none"
    """What they see if there are no documents."""
    records: bool = False
    """Whether several documents are records, not a table."""


def command(
    *examples: str, empty: str = "none"
) -> Callable[[Callable[..., Document | Documents | Result]], Callable[..., None]]:
    """Make a command of a function whose parameters are its arguments. It gets --json, and prints what is returned.

    A function whose first parameter is `log` gets the log at --path, opened. One that has a parameter `json` gets that
    too. `empty` is what people see if it returns no documents.
    """

    def make(function: Callable[..., Document | Documents | Result]) -> Callable[..., None]:
        given = dict(inspect.signature(function).parameters)
        needs_log = given.pop("log", None) is not None
        annotated = SimpleNamespace(__annotations__={name: each.annotation for name, each in given.items()})
        types = get_type_hints(annotated, vars(sys.modules[function.__module__]), include_extras=True)
        types |= ({"path": arguments.Path} if needs_log else {}) | {"json": arguments.Json}
        defaults = {name: each.default for name, each in given.items()} | {"json": False}

        def run(*, json: bool, **options: Any) -> None:
            if needs_log:
                options["log"] = open_log(options.pop("path"))
            if "json" in given:
                options["json"] = json
            found = function(**options)
            result = found if isinstance(found, Result) else Result(found, empty=empty)
            shown = result.documents if json or result.text is None else result.text
            if isinstance(shown, str):
                typer.echo(shown, nl=False)
            else:
                output.show(shown, json=json, empty=result.empty, records=result.records)
            for error in result.errors:
                output.print_error(error)
            if result.errors:
                raise typer.Exit(1)

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
