"""`pyspark-log backup` and `pyspark-log restore`: copy a log while it is used, and make a log of the copy."""

from __future__ import annotations

from datetime import datetime, timezone
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pyspark_log.cli import arguments, output
from pyspark_log.cli.output import bar, counted
from pyspark_log.opening import canonical, open_log

if TYPE_CHECKING:
    from pyspark_log_coordinator.backup.manifest import Backup
    from pyspark_log_storage.stores.store import Store

Address = Annotated[str, typer.Argument(metavar="ADDRESS", help="Folder or bucket of the backups.", show_default=False)]


@arguments.examples(
    "pyspark-log backup /backups/log",
    "pyspark-log backup s3://bucket/backups/log --verify --keep 7",
)
def backup(
    target: Address,
    path: arguments.Path,
    verify: Annotated[
        bool, typer.Option("--verify", help="Then read every file of all backups again, or of those that --keep keeps.")
    ] = False,
    keep: Annotated[
        int | None,
        typer.Option(min=1, metavar="N", help="Keep the newest N backups, and delete older ones (default: keep all)."),
    ] = None,
    json: arguments.Json = False,
) -> None:
    """Back up the log, while it is used.

    Copies topics, groups and their offsets, each as of one moment, and checks each chunk. Only what earlier backups at
    the same address have not copied is copied. If the command is interrupted, there is no backup; run it again to
    continue.
    """
    from pyspark_log_coordinator.backup import backup as backups
    from pyspark_log_coordinator.backup import manifest
    from pyspark_log_storage.errors import CorruptObject

    store = _open(target)
    made, copied = backups.back_up(open_log(path), store, bar)
    kept = manifest.numbers(store)[-(keep or 0) :]
    wrong: list[str] = []
    if verify:
        wrong = [
            f"{error.message} (in {'backup' if len(numbers) == 1 else 'backups'} {', '.join(map(str, numbers))})"
            for error, numbers in backups.check(store, kept, bar)
        ]
    problems = counted(len(wrong), "problem") if wrong else "no problems"
    checked = f"checked every file of {counted(len(kept), 'backup')}: {problems}"
    facts: dict[str, Any] = {"copied": copied.files, "bytes": copied.bytes, "verified": verify and not wrong}
    deleted: list[int] = []
    files = 0
    if keep is not None and not wrong:
        try:
            deleted, files = backups.keep(store, keep)
        except CorruptObject as error:  # an older backup is damaged: nothing was deleted
            wrong.append(error.message)
    output.show(
        {**_document(made), **facts, "deleted": deleted, "problems": wrong},
        f"backup {made.number} of cluster {made.cluster} is in {store.url}: {_contents(made)}",
        f"copied {counted(copied.files, 'file')}, {counted(copied.bytes, 'byte')}",
        *([f"deleted {counted(len(deleted), 'older backup')} and {counted(files, 'file')}"] if deleted else []),
        *([checked] if verify else []),
        json=json,
    )
    for each in wrong:
        output.print_error(each)
    if wrong:
        output.print_error(
            f"{'nothing was deleted; ' if keep else ''}move damaged files out of {store.url}, and the next backup "
            "copies them again, if it can; delete the manifest of a backup that stays damaged"
        )
        raise typer.Exit(1)


@arguments.examples(
    "pyspark-log restore /backups/log --as-new --path /data/test",
    "pyspark-log restore s3://bucket/backups/log --as-original --path /data/log",
)
def restore(  # noqa: PLR0913, PLR0917 -- the options of a command
    source: Address,
    path: arguments.Path,
    as_new: Annotated[
        bool, typer.Option("--as-new", help="Restore it as a cluster of its own, with a new id.")
    ] = False,
    as_original: Annotated[
        bool,
        typer.Option(
            "--as-original", help="Restore it in the place of its original, which is lost; checkpoints continue."
        ),
    ] = False,
    number: Annotated[
        int | None, typer.Option("--backup", metavar="N", help="Number of the backup (default: the newest).")
    ] = None,
    show: Annotated[bool, typer.Option("--list", help="Only list the backups.")] = False,
    yes: arguments.Yes = False,
    json: arguments.Json = False,
) -> None:
    """Restore a backup to an empty folder or bucket.

    The log is on one root then; add nodes, and reassign topics to them. If the command is interrupted, run it again to
    continue.
    """
    from pyspark_log_coordinator.backup import manifest
    from pyspark_log_coordinator.backup.restore import restore as restore_to
    from pyspark_log_coordinator.environment import real_environment
    from pyspark_log_storage.errors import CorruptObject, NewerFormat

    store = _open(source)
    numbers = manifest.numbers(store)
    if show:
        readable, wrong = [], []
        for each in numbers:
            try:
                readable.append(manifest.read(store, each))
            except (CorruptObject, NewerFormat) as error:
                wrong.append(error.message)
        _list(readable, json=json)
        for message in wrong:
            output.print_error(message)
        if wrong:
            raise typer.Exit(1)
        return
    if as_new == as_original:
        arguments.refuse("--as-new, --as-original", "give one of these")
    if not numbers:
        arguments.refuse("ADDRESS", f"there is no backup in {store.url}; one that was interrupted is none")
    if number is not None and number not in numbers:
        arguments.refuse("--backup", f"there is no backup {number} (existing: {', '.join(map(str, numbers))})")
    found = manifest.read(store, number or numbers[-1])
    if as_original:
        question = (
            f"restore cluster {found.cluster} to {canonical(path)}, in the place of the original? Rows since "
            f"{_time(found)} are lost, and the original must not be used afterwards."
        )
        arguments.confirm(question, otherwise="nothing was restored", yes=yes)
    cluster, copied = restore_to(found, store, _open(path), real_environment(), as_new=as_new, bar=bar)
    output.show(
        {**_document(found), "backup_of": found.cluster, "cluster": cluster, "path": canonical(path)},
        f"restored backup {found.number} to {canonical(path)}, as cluster {cluster}: {_contents(found)}",
        f"copied {counted(copied.files, 'file')}, {counted(copied.bytes, 'byte')}, and checked them",
        json=json,
    )


def _open(address: str) -> Store:
    from pyspark_log_storage.stores.addresses import absolute_url, open_store

    return open_store(absolute_url(address))


def _document(found: Backup) -> dict[str, Any]:
    topics = [
        {"topic": each.topic.name, "topic_id": each.topic.topic_id, "entry": each.number, "rows": _rows(each.topic)}
        for each in found.topics
    ]
    groups = [{"group": each.state.group_id, "entry": each.entry} for each in found.groups]
    return {"backup": found.number, "cluster": found.cluster, "at_ms": found.at_ms, "topics": topics, "groups": groups}


def _contents(found: Backup) -> str:
    rows = sum(_rows(each.topic) for each in found.topics)
    topics, groups = counted(len(found.topics), "topic"), counted(len(found.groups), "group")
    return f"{topics}, {counted(rows, 'row')}, {groups}"


def _rows(state: Any) -> int:
    return sum(each.rows_between(each.log_start, each.log_end) for each in state.partitions)


def _time(found: Backup) -> str:
    """Return when it was begun. Its clock may have been wrong, and Python has no year 10000."""
    try:
        return datetime.fromtimestamp(found.at_ms / 1000, timezone.utc).strftime("%Y-%m-%d %H:%M:%S UTC")
    except (ValueError, OverflowError, OSError):
        return f"{found.at_ms:,} ms since 1970"


def _list(found: list[Backup], *, json: bool) -> None:
    if json:
        for each in found:
            output.print_json(_document(each))
        return
    output.print_table(
        ("backup", "begun", "cluster", "contents"),
        [
            {"backup": str(each.number), "begun": _time(each), "cluster": each.cluster, "contents": _contents(each)}
            for each in found
        ],
    )
