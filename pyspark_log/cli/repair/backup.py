"""`pyspark-log backup` and `pyspark-log restore`: copy a log while it is used, and make a log of the copy."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from pyspark_log.cli import arguments
from pyspark_log.cli.command import Result, command
from pyspark_log.cli.output import bar
from pyspark_log.documents.text import named, time_of
from pyspark_log.opening import canonical
from pyspark_log_coordinator.backup import backup as backups
from pyspark_log_coordinator.backup import manifest
from pyspark_log_coordinator.backup.restore import restore as restore_to
from pyspark_log_coordinator.environment import real_environment
from pyspark_log_storage.errors import CorruptObject, NewerFormat
from pyspark_log_storage.stores.addresses import absolute_url, open_store

if TYPE_CHECKING:
    from pyspark_log_coordinator.backup.manifest import Backup
    from pyspark_log_coordinator.log.log import Log
    from pyspark_log_storage.stores.store import Store

Address = Annotated[str, typer.Argument(metavar="ADDRESS", help="Folder or bucket of the backups.")]


@command(
    "pyspark-log backup /backups/log",
    "pyspark-log backup s3://bucket/backups/log --verify --keep 7",
)
def backup(
    log: Log,
    target: Address,
    verify: Annotated[
        bool, typer.Option("--verify", help="Then read every file of all backups again, or of those that --keep keeps.")
    ] = False,
    keep: Annotated[
        int | None,
        typer.Option(min=1, metavar="N", help="Keep the newest N backups, and delete older ones (default: keep all)."),
    ] = None,
) -> Result:
    """Back up the log, while it is used.

    Copies topics, groups and their offsets, each as of one moment, and checks each chunk. Only what earlier backups at
    the same address have not copied is copied. If the command is interrupted, there is no backup; run it again to
    continue.
    """
    store = _open(target)
    made, copied = backups.back_up(log, store, bar)
    kept = manifest.numbers(store)[-(keep or 0) :]
    wrong: list[str] = []
    if verify:
        wrong = [
            f"{error.message} (in {named('backup', numbers)})" for error, numbers in backups.check(store, kept, bar)
        ]
    facts: dict[str, Any] = {"copied": copied.files, "bytes": copied.bytes, "verified": verify and not wrong}
    deleted: list[int] = []
    if keep is not None and not wrong:
        try:
            deleted, _ = backups.keep(store, keep)
        except CorruptObject as error:  # an older backup is damaged: nothing was deleted
            wrong.append(error.message)
    facts["deleted"] = deleted
    errors = list(wrong)
    if wrong:
        errors.append(
            f"{'nothing was deleted; ' if keep else ''}move damaged files out of {store.url}, and the next backup "
            "copies them again, if it can; delete the manifest of a backup that stays damaged"
        )
    return Result({**_document(made), **facts, "problems": wrong}, errors, _in_short(made) | facts)


@command(
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
) -> Result:
    """Restore a backup to an empty folder or bucket.

    The log is on one root then; add nodes, and reassign topics to them. If the command is interrupted, run it again to
    continue.
    """
    store = _open(source)
    numbers = manifest.numbers(store)
    if show:
        return _listed(store, numbers)
    if as_new == as_original:
        arguments.refuse("--as-new, --as-original", "give one of these")
    if not numbers:
        arguments.refuse("ADDRESS", f"there is no backup in {store.url}; one that was interrupted is none")
    if number is not None and number not in numbers:
        arguments.refuse("--backup", f"there is no backup {number} (existing: {', '.join(map(str, numbers))})")
    chosen = manifest.read(store, number or numbers[-1])
    if as_original:
        question = (
            f"restore cluster {chosen.cluster} to {canonical(path)}, in the place of the original? Rows since "
            f"{time_of(chosen.at_ms)} are lost, and the original must not be used afterwards."
        )
        arguments.confirm(question, otherwise="nothing was restored", yes=yes)
    cluster, copied = restore_to(chosen, store, _open(path), real_environment(), as_new=as_new, bar=bar)
    facts = {"backup_of": chosen.cluster, "cluster": cluster, "path": canonical(path)}
    return Result(
        _document(chosen) | facts, text=_in_short(chosen) | facts | {"copied": copied.files, "bytes": copied.bytes}
    )


def _listed(store: Store, numbers: list[int]) -> Result:
    readable, wrong = [], []
    for each in numbers:
        try:
            readable.append(manifest.read(store, each))
        except (CorruptObject, NewerFormat) as error:
            wrong.append(error.message)
    return Result([_document(each) for each in readable], wrong, [_in_short(each) for each in readable])


def _open(address: str) -> Store:
    return open_store(absolute_url(address))


def _document(backup: Backup) -> dict[str, Any]:
    topics = [
        {
            "topic": each.topic.name,
            "topic_id": each.topic.topic_id,
            "entry": each.number,
            "rows": sum(p.rows_between(p.log_start, p.log_end) for p in each.topic.partitions),
        }
        for each in backup.topics
    ]
    groups = [{"group": each.state.group_id, "entry": each.number} for each in backup.groups]
    facts = {"backup": backup.number, "cluster": backup.cluster, "at_ms": backup.at_ms}
    return facts | {"topics": topics, "groups": groups}


def _in_short(backup: Backup) -> dict[str, Any]:
    """Return what people see of a backup: numbers in place of the topics and groups."""
    found = _document(backup)
    rows = sum(each["rows"] for each in found["topics"])
    return found | {"topics": len(found["topics"]), "groups": len(found["groups"]), "rows": rows}
