"""`pyspark-log ui`: a web page over the stores of a log."""

from __future__ import annotations

import ipaddress
import pathlib
import re
import secrets
import socket
from typing import Annotated
from urllib.parse import quote

import typer

from pyspark_log.cli import arguments
from pyspark_log.documents.topics import handles_of
from pyspark_log.opening import open_log


@arguments.examples(
    "pyspark-log ui",
    "pyspark-log ui --listen 0.0.0.0:8080 --mask value --mask header:Authorization",
    "pyspark-log ui --export incident.html",
)
def ui(  # noqa: PLR0913, PLR0917 -- options
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
        ),
    ] = "",
    allow_changes: Annotated[
        bool, typer.Option("--allow-changes", help="Let viewers change things, such as the offsets of groups.")
    ] = False,
    mask: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help="What is not shown: a column, a field such as user.ssn, or header:NAME; TOPIC: before it is for "
            "one topic; can be repeated.",
        ),
    ] = None,
    no_rows: Annotated[bool, typer.Option("--no-rows", help="Show no contents of rows at all.")] = False,
    host_name: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="Another name of the host, behind a proxy; can be repeated."),
    ] = None,
    root_path: Annotated[
        str, typer.Option(metavar="PATH", help="Path below which a proxy serves the page, such as /log.")
    ] = "",
    export: Annotated[
        pathlib.Path | None,
        typer.Option(
            metavar="FILE", help="Write all pages except rows to one file that works offline, and serve nothing."
        ),
    ] = None,
) -> None:
    """Show the log in a browser: topics, rows, groups, history.

    It needs pip install jinja2 starlette uvicorn. It reads what it shows from the stores, keeps nothing, and changes
    nothing without --allow-changes.
    """
    from pyspark_log.browse import masks
    from pyspark_log.ui.app import Ui
    from pyspark_log.ui.export import export as exported
    from pyspark_log.ui.settings import Settings

    if export is not None:
        export.write_text(exported(path), encoding="utf-8")
        return

    host, port = arguments.host_and_port(listen)
    if root_path and (not root_path.startswith("/") or not _PATH.fullmatch(root_path)):
        arguments.refuse("--root-path", f"{root_path!r} is not a path such as /log")
    import uvicorn

    log = open_log(path)  # a wrong address is an error now, and not on the page
    if mask:
        masks.check(mask, {each.name: each.schemas for each in handles_of(log, None)})
    host = host or "0.0.0.0"  # noqa: S104 -- as the user has typed it
    try:
        listener = socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET)
    except OSError as error:
        arguments.refuse("--listen", f"{listen!r} cannot be listened on: {error}; choose another address or port")
    bound_host, bound, *_ = listener.getsockname()
    if not token and not ipaddress.ip_address(bound_host).is_loopback:
        token = secrets.token_urlsafe(18)
    settings = Settings(
        path=path,
        host=host,
        port=bound,
        hosts=tuple(host_name or ()),
        root=root_path.rstrip("/"),
        token=token,
        allow_changes=allow_changes,
        shows_rows=not no_rows,
        mask=tuple(mask or ()),
    )
    shown = f"[{host}]" if ":" in host else host
    query = f"?token={quote(token, safe='')}" if token else ""
    typer.echo(f"serving {path} at http://{shown}:{bound}{settings.root}/{query} (end with Ctrl-C)")
    config = uvicorn.Config(Ui(settings).app(), log_level="warning", access_log=False)
    uvicorn.Server(config).run(sockets=[listener])


_PATH = re.compile("[A-Za-z0-9/_.~-]*")
