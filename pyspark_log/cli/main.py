"""The program `pyspark-log`: plain words for usage errors, and exit codes.

exit code 0     success; also if the reader of the output has closed the pipe (`| head`)
exit code 1     an error, printed on stderr
exit code 2     a usage error
exit code 130   interrupted; 143 by SIGTERM, 129 by SIGHUP
"""

from __future__ import annotations

import contextlib
import io
import os
import sys
from typing import Annotated, Any

import typer

import pyspark_log
from pyspark_log.build import build
from pyspark_log.cli import signals
from pyspark_log.cli.commands import COMMANDS, STYLE, LazyGroup
from pyspark_log_coordinator.model.topic_config import REPLICA_LAG_TIME_MAX_MS
from pyspark_log_storage.errors import LogError
from pyspark_log_storage.stores import store_threads
from pyspark_log_storage.stores.storage_options import ENVIRONMENT_VARIABLE, StorageOptions

FINISH_SECONDS = 1.0
"""How long the program waits at its end for slow stores. A majority has answered; one that hangs may never do."""
_OPTIONS_LAST = "put options after the command, as in: pyspark-log topics list --path /data/log"
_KAFKAS = {
    "--bootstrap-server": "use --path for the address of the cluster",
    "--from-beginning": "this is the default; use --from to start elsewhere",
    "--group": "name the group without an option, as in: pyspark-log groups describe GROUP",
    "--offset": "use --from",
    "--property": "use --format and --key-separator",
    "--replica-lag-time-max-ms": (
        "it is a setting of the topic: pyspark-log topics alter TOPIC --config "
        f"replica.lag.time.max.ms={REPLICA_LAG_TIME_MAX_MS}"
    ),
    "--topic": "name the topic without an option, as in: pyspark-log consume TOPIC",
    "--watch": "use: pyspark-log node run",
}
"""Hints for the options of Kafka's tools that have other names here."""
_ALTER_PARTITIONS = "use: pyspark-log topics add-partitions TOPIC --partitions N"
_KAFKAS_COMMANDS = dict.fromkeys(("group", "consumer-groups"), "use: pyspark-log groups")


class _Program(LazyGroup):
    """All commands. An error is printed in one sentence; a traceback is a bug."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings | {"commands": COMMANDS})

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        try:
            return super().parse_args(ctx, args)
        except Exception as error:
            _add_hint(error)
            raise

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        hint = _KAFKAS_COMMANDS.get(args[0])
        if hint is not None:
            ctx.fail(f"No such command {args[0]!r}; {hint}")
        return super().resolve_command(ctx, args)

    def invoke(self, ctx: Any) -> Any:
        with signals.as_interrupts():
            return self._invoke(ctx)

    def _invoke(self, ctx: Any) -> Any:
        try:
            result = super().invoke(ctx)
            sys.stdout.flush()
        except BrokenPipeError:
            _discard_output()
        except (LogError, OSError) as error:
            typer.echo(f"pyspark-log: {_sentence(error)}", err=True)
            if isinstance(error, OSError):
                _discard_output()
            raise typer.Exit(1) from error
        except Exception as error:
            _add_hint(error)
            raise
        else:
            return result
        finally:
            store_threads.finish_calls(FINISH_SECONDS)


def _add_hint(error: Exception) -> None:
    """Add a hint to an error about an unknown option, and the value to one about a value."""
    unknown: Any = error
    cause: Any = error.__cause__
    if hasattr(cause, "errors"):
        message, value = unknown.message.removeprefix("Value error, "), cause.errors()[0]["input"]
        is_of_pydantic = message.startswith("Input ")  # which typer checks values with
        unknown.message = f"{value!r} {message.removeprefix('Input ')}" if is_of_pydantic else message
    if not hasattr(unknown, "possibilities"):
        return
    command = unknown.ctx.command if unknown.ctx is not None else None
    if hasattr(command, "commands"):
        hint: str | None = _OPTIONS_LAST
    elif (unknown.option_name, getattr(command, "name", None)) == ("--partitions", "alter"):
        hint = _ALTER_PARTITIONS
    else:
        hint = _KAFKAS.get(unknown.option_name)
    if hint is not None:
        unknown.message += f"; {hint}"
        unknown.possibilities = None


def _discard_output() -> None:
    """Discard buffered output; otherwise Python reports the failing stdout again at exit."""
    with contextlib.suppress(io.UnsupportedOperation):  # stdout is not a file
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _sentence(error: LogError | OSError) -> str:
    if isinstance(error, LogError):
        return error.message
    return f"{error.filename or 'cannot read or write'}: {error.strerror or error}"


app = typer.Typer(
    name="pyspark-log",
    cls=_Program,
    help="Administer, write and read the topics of a replicated log for Spark.",
    epilog="""\b
Pass the address of the cluster with --path or PYSPARK_LOG_PATH:
  export PYSPARK_LOG_PATH=/data/log
  pyspark-log topics create flights --partitions 8
  echo hello | pyspark-log produce flights
  pyspark-log consume flights
""",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    **STYLE,
)


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"pyspark-log {pyspark_log.__version__} (build {build()})")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and exit.")
    ] = False,
    storage_options: Annotated[
        str | None,
        typer.Option(
            envvar=ENVIRONMENT_VARIABLE,
            metavar="JSON",
            help="Credentials and settings of object stores, with s3fs's names. Others can see arguments: set the "
            "variable.",
        ),
    ] = None,
) -> None:
    """Give the options to all that the command opens, and to programs that it starts."""
    del version  # its callback has shown it
    if storage_options:
        StorageOptions.parse(storage_options)
        os.environ[ENVIRONMENT_VARIABLE] = storage_options
