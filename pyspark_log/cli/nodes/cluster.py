"""`pyspark-log cluster`: create, describe, adopt and rebuild a cluster, migrate its journals, check a store."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pyspark_log.cli import arguments
from pyspark_log.cli.command import command
from pyspark_log.cli.nodes.nodes import print_voting_advice
from pyspark_log.documents import cluster as documents
from pyspark_log.opening import canonical, own_log
from pyspark_log_coordinator.environment import real_environment
from pyspark_log_coordinator.log import adoption, bootstrap, journal_move
from pyspark_log_coordinator.log.log import Log
from pyspark_log_storage.errors import InvalidOption
from pyspark_log_storage.stores import self_test, store_check
from pyspark_log_storage.stores.addresses import absolute_url, absolute_urls, open_store

if TYPE_CHECKING:
    from pyspark_log.cli.output import Document

_MOUNTS = Path("/proc/self/mounts")


@command(
    "pyspark-log cluster create --path /data/log",
    "pyspark-log cluster create --journal-nodes /disk1/log,/disk2/log,/disk3/log",
)
def create(
    path: Annotated[
        str | None,
        typer.Option(
            "--path",
            "-p",
            envvar="PYSPARK_LOG_PATH",
            metavar="ADDRESS",
            help="Address of the store of a cluster on one store.",
        ),
    ] = None,
    nodes: Annotated[
        str | None,
        typer.Option(
            "--journal-nodes",
            metavar="ADDRESS,ADDRESS,ADDRESS",
            help="Addresses of three or more stores that fail independently. They become nodes 0, 1, 2 and so on.",
        ),
    ] = None,
) -> Document:
    """Create a cluster, on one store or several journal nodes.

    With --journal-nodes the journals survive the loss of a minority of the nodes, and can later be migrated to others;
    --path is ignored. Each store is tested and must be empty. `topics create` also creates a cluster on one store.
    """
    if nodes is not None:
        stores, environment = [open_store(absolute_url(each)) for each in nodes.split(",")], real_environment()
        bootstrap.mark(stores, environment)
        log = Log(stores, environment)
    elif path is not None and "," not in path:
        log = own_log(path)
    else:
        arguments.refuse("--path", "give the address of one store, or --journal-nodes with those of several")
    log.locate()
    created = not log.cluster.refresh().cluster_id
    log.open(create=True)
    urls = [] if log.journals.nodes is None else log.journals.nodes.urls
    return {"cluster": log.cluster_id, "journal_nodes": urls, "created": created}


@command("pyspark-log cluster describe")
def describe(log: Log) -> Document:
    """Show the cluster and the state of its journal nodes."""
    print_voting_advice(log)
    return documents.cluster(log)


@command("pyspark-log cluster adopt --moved --path /new/disk1,/new/disk2,/new/disk3")
def adopt(
    path: arguments.Path,
    moved: Annotated[
        bool, typer.Option("--moved", help="The log was moved to this address, and the original is not used any more.")
    ] = False,
    yes: arguments.Yes = False,
) -> Document:
    """Use a log at the address to which its folders were moved.

    A log with several nodes is only opened at the address that it has recorded. Give the new address of the root, or of
    all journal nodes. Nodes that have no journals stay where they are. It is then refused at the former address.
    """
    if not moved:
        arguments.refuse("--moved", "give it if the folders at this address are the original, which was moved here")
    log = adoption.MovedLog([open_store(each) for each in absolute_urls(path)], own_log(path))
    shared = f" It uses the nodes at {', '.join(log.elsewhere)}." if log.elsewhere else ""
    arguments.confirm(
        f"make {canonical(path)} the cluster {log.cluster_id}, which was at {log.was or 'any address'}?{shared} "
        "Rows are lost if the original is used afterwards.",
        otherwise="nothing was changed",
        yes=yes,
    )
    changed = log.record()
    return {"cluster": log.cluster_id, "addresses": canonical(path).split(","), "changed": changed}


@command("pyspark-log cluster migrate-journals --to 0,1,3")
def migrate_journals(
    log: Log,
    to: Annotated[
        str,
        typer.Option(
            metavar="NODE,NODE,NODE",
            help="Ids of the nodes that will hold the journals: three or more, including those that stay.",
        ),
    ],
) -> Document:
    """Migrate the journals to other nodes of the cluster.

    Use it to replace a journal node that is lost or was renewed. Queries and consumers that use the log end with
    LogMoved; start them again. A majority of the current journal nodes must be reachable. If the command is
    interrupted, the next one that uses the log finishes it. Afterwards, versions of a topic from before the migration
    can no longer be read (versionAsOf).
    """
    ids = tuple(each.strip() for each in to.split(","))
    done = journal_move.move(log, ids)
    facts = {"generation": done.nodes.generation, "journal_nodes": list(done.nodes.urls)}
    return {"cluster": done.nodes.cluster, **facts, "migrated": done.changed, "topics": done.topics}


@command(
    "pyspark-log cluster check-store /mnt/share/log",
    "pyspark-log cluster check-store /mnt/share/log --meet monday",
)
def check_store(
    address: Annotated[str, typer.Argument(metavar="ADDRESS", help="Address of the store.")],
    meet: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="Check it together with another machine, on which the same command runs with the same NAME: any new "
            "word. The two wait for each other for a minute.",
        ),
    ] = None,
) -> Document:
    """Check whether a store can hold a log.

    It makes the test that a store must pass when it joins a cluster, and then two users create, read and list the same
    objects at once. With --meet the other user is another machine, whose caches are then tested too. It does not test
    whether flushed bytes survive a power failure, nor faults that are rare. A node of a running cluster may be checked;
    nothing stays on the store.
    """
    if meet is not None and re.fullmatch(r"[A-Za-z0-9_]{1,50}", meet) is None:
        arguments.refuse("--meet", f"{meet!r} is not a word of letters and digits")
    url = absolute_url(address)
    if "://" not in url and not Path(url).is_dir():
        raise InvalidOption("address", f"there is no folder at {url}; is it mounted? Create it first")
    stores, environment = [open_store(url), open_store(url)], real_environment()
    self_test.self_test(stores[0], environment.nonce(), environment.store_threads)
    nonce = environment.nonce()
    outcome = store_check.meet_oneself(stores, nonce) if meet is None else store_check.meet(stores[0], meet, nonce)
    machines = {"machines": 1 if meet is None else 2, "rounds": outcome.rounds, "slowest_ms": outcome.slowest_ms}
    return {"address": url, "file_system": _file_system(url)} | machines


def _file_system(url: str) -> str | None:
    """Return the kind of file system and what is mounted, or None if that is unknown."""
    path = Path(url).resolve()
    try:
        with _MOUNTS.open(encoding="utf-8") as file:
            mounts = [line.split()[:3] for line in file]
    except OSError:
        return None
    above = [(len(point), kind, what) for what, point, kind in mounts if f"{path}/".startswith(f"{point.rstrip('/')}/")]
    return None if "://" in url or not above else "{1} ({2})".format(*max(above, key=lambda each: each[0]))
