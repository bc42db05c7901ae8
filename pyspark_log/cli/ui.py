"""`pyspark-log ui`: a web page over the stores of a log."""

from __future__ import annotations

import ipaddress
import pathlib
import secrets
from typing import Annotated
from urllib.parse import quote

import typer

from pyspark_log.cli import arguments
from pyspark_log.opening import open_log


@arguments.examples(
    "pyspark-log ui",
    "pyspark-log ui --listen 0.0.0.0:8080 --mask value --mask header:Authorization",
    "pyspark-log ui --export incident.html",
)
def ui(
    path: arguments.Path,
    listen: Annotated[
        str, typer.Option(metavar="HOST:PORT", help="Address to listen on. Any but loopback needs a token.")
    ] = "127.0.0.1:8080",
    token: Annotated[
        str,
        typer.Option(
            envvar="PYSPARK_LOG_UI_TOKEN",
            metavar="TEXT",
            help="What viewers must have (default: none on loopback, else a new one, which is printed).",
            show_default=False,
        ),
    ] = "",
    allow_changes: Annotated[
        bool, typer.Option("--allow-changes", help="Let viewers change things, such as the offsets of groups.")
    ] = False,
    mask: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME", help="Column whose contents are not shown, or header:NAME; repeatable.", show_default=False
        ),
    ] = None,
    export: Annotated[
        pathlib.Path | None,
        typer.Option(
            metavar="FILE",
            help="Write all pages except rows to one file that works offline, and serve nothing.",
            show_default=False,
        ),
    ] = None,
) -> None:
    """Show the log in a browser: topics, rows, groups, history.

    It needs pip install jinja2 starlette uvicorn. It reads what it shows from the stores, keeps nothing, and changes
    nothing without --allow-changes.
    """
    from pyspark_log.ui.app import Settings, Ui
    from pyspark_log.ui.export import export as exported

    if export is not None:
        export.write_text(exported(path), encoding="utf-8")
        return

    host, _, port = listen.rpartition(":")
    if not host or not port.isdecimal() or int(port) >= 2**16:
        arguments.refuse("--listen", f"{listen!r} is not HOST:PORT, such as 127.0.0.1:8080")
    import uvicorn

    open_log(path)  # a wrong address is an error now, and not on the page
    host = host.strip("[]")
    if not token and not _is_loopback(host):
        token = secrets.token_urlsafe(18)
    settings = Settings(path=path, host=host, token=token, allow_changes=allow_changes, mask=tuple(mask or ()))
    shown = f"[{host}]" if ":" in host else host
    query = f"?token={quote(token, safe='')}" if token else ""
    typer.echo(f"serving {path} at http://{shown}:{port}/{query} (end with Ctrl-C)")
    uvicorn.run(Ui(settings).app(), host=host, port=int(port), log_level="warning", access_log=False)


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
