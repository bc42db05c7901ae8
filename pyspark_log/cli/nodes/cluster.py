"""`pyspark-log cluster`: create, describe, adopt and rebuild a cluster, migrate its journals, check a store."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Any

import typer

from pyspark_log.cli import arguments, output
from pyspark_log.cli.nodes.nodes import DOES_NOT_VOTE, print_voting_advice
from pyspark_log.cli.output import Column, counted
from pyspark_log.opening import canonical, open_log, own_log
from pyspark_log_coordinator.environment import real_environment
from pyspark_log_coordinator.log import adoption, bootstrap, journal_move
from pyspark_log_coordinator.log.log import Log
from pyspark_log_storage.errors import InvalidOption
from pyspark_log_storage.stores import self_test, store_check
from pyspark_log_storage.stores.addresses import absolute_url, absolute_urls, open_store

_MOUNTS = Path("/proc/self/mounts")


@arguments.examples(
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
            show_default=False,
        ),
    ] = None,
    nodes: Annotated[
        str | None,
        typer.Option(
            "--journal-nodes",
            metavar="ADDRESS,ADDRESS,ADDRESS",
            help="Addresses of three or more stores that fail independently. They become nodes 0, 1, 2 and so on.",
            show_default=False,
        ),
    ] = None,
    json: arguments.Json = False,
) -> None:
    """Create a cluster, on one store or several journal nodes.

    With --journal-nodes the journals survive the loss of a minority of the nodes, and can later be migrated to others;
    --path is ignored. Each store is tested and must be empty. `topics create` also creates a cluster on one store.
    """
    if nodes is None:
        _create_on_one(path, json=json)
        return

    stores = [open_store(absolute_url(each)) for each in nodes.split(",")]
    environment = real_environment()
    bootstrap.mark(stores, environment)
    log = Log(stores, environment)
    log.locate()
    created = not log.cluster.refresh().cluster_id
    log.open(create=True)
    found = log.journals.nodes
    assert found is not None
    where = f"on {len(stores)} journal nodes"
    output.show(
        {"cluster": found.cluster, "journal_nodes": list(found.urls), "created": created},
        f"created cluster {found.cluster} {where}"
        if created
        else f"cluster {found.cluster} already exists {where}; nothing was changed",
        f"address: {','.join(found.urls)}",
        json=json,
    )


def _create_on_one(path: str | None, *, json: bool) -> None:
    if path is None or "," in path:
        arguments.refuse("--path", "give the address of one store, or --journal-nodes with those of several")

    log = own_log(path)
    log.locate()
    created = not log.cluster.refresh().cluster_id
    log.open(create=True)
    found, url = log.cluster_id, log.store.url
    output.show(
        {"cluster": found, "journal_nodes": [], "created": created},
        f"created cluster {found} on one store" if created else f"cluster {found} already exists; nothing was changed",
        f"address: {url}",
        json=json,
    )


@arguments.examples("pyspark-log cluster describe")
def describe(path: arguments.Path, json: arguments.Json = False) -> None:
    """Show the cluster and the state of its journal nodes."""
    log = open_log(path)
    nodes = _journal_nodes(log)
    state = log.cluster.state
    if json:
        facts = {"entry": log.cluster.number, "nodes": len(state.nodes), "topics": len(state.topics)}
        print_voting_advice(log)
        output.print_json({"cluster": state.cluster_id, **facts, "journal_nodes": nodes})
        return
    typer.echo(f"cluster        {state.cluster_id}")
    typer.echo(f"journal entry  {log.cluster.number:,}")
    typer.echo(f"nodes          {len(state.nodes):,}")
    typer.echo(f"topics         {len(state.topics):,}\n")
    columns = (
        Column("node", "journal node"),
        Column("url", "address"),
        "incarnation",
        Column("missing", "state", lambda why: DOES_NOT_VOTE if why else "live"),
    )
    output.print_table(columns, nodes)
    replaced = log.journals.replaced_nodes()
    for each in nodes:
        if each["missing"] is not None and each["node"] not in replaced:
            output.print_error(each["missing"])
    print_voting_advice(log)


@arguments.examples("pyspark-log cluster adopt --moved --path /new/disk1,/new/disk2,/new/disk3")
def adopt(
    path: arguments.Path,
    moved: Annotated[
        bool, typer.Option("--moved", help="The log was moved to this address, and the original is not used any more.")
    ] = False,
    yes: arguments.Yes = False,
    json: arguments.Json = False,
) -> None:
    """Use a log at the address to which its folders were moved.

    A log with several nodes is only opened at the address that it has recorded. Give the new address of the root, or of
    all journal nodes. Nodes that have no journals stay where they are. It is then refused at the former address.
    """
    if not moved:
        arguments.refuse("--moved", "give it if the folders at this address are the original, which was moved here")
    found = adoption.MovedLog([open_store(each) for each in absolute_urls(path)], own_log(path))
    shared = f" It uses the nodes at {', '.join(found.elsewhere)}." if found.elsewhere else ""
    arguments.confirm(
        f"make {canonical(path)} the cluster {found.cluster_id}, which was at {found.was or 'any address'}?{shared} "
        "Rows are lost if the original is used afterwards.",
        otherwise="nothing was changed",
        yes=yes,
    )
    changed = found.record()
    output.show(
        {"cluster": found.cluster_id, "addresses": canonical(path).split(","), "changed": changed},
        f"cluster {found.cluster_id} is at {canonical(path)}"
        if changed
        else f"cluster {found.cluster_id} is at {canonical(path)} already; nothing was changed",
        json=json,
    )


@arguments.examples("pyspark-log cluster migrate-journals --to 0,1,3")
def migrate_journals(
    path: arguments.Path,
    to: Annotated[
        str,
        typer.Option(
            metavar="NODE,NODE,NODE",
            help="Ids of the nodes that will hold the journals: three or more, including those that stay.",
            show_default=False,
        ),
    ],
    json: arguments.Json = False,
) -> None:
    """Migrate the journals to other nodes of the cluster.

    Use it to replace a journal node that is lost or was renewed. Programs that use the log end with LogMoved; start
    them again. A majority of the current journal nodes must be reachable. If the command is interrupted, the next one
    that uses the log finishes it. Afterwards, versions of a topic from before the migration can no longer be read
    (versionAsOf).
    """
    log = open_log(path)
    ids = tuple(each.strip() for each in to.split(","))
    done = journal_move.move(log, ids)
    facts = {"generation": done.nodes.generation, "journal_nodes": list(done.nodes.urls)}
    lines = [
        f"migrated the journals of the cluster and of {counted(done.topics, 'topic')} to {len(ids)} journal nodes",
        f"address: {','.join(done.nodes.urls)}",
    ]
    output.show(
        {"cluster": done.nodes.cluster, **facts, "migrated": done.changed, "topics": done.topics},
        *(lines if done.changed else ["the journals are already on these nodes; nothing was changed"]),
        json=json,
    )


def _journal_nodes(log: Log) -> list[dict[str, Any]]:
    if log.journals.nodes is None:
        (only,) = (each for each in log.nodes.values() if log.node_store(each.node_id) is log.store)
        return [{"node": only.node_id, "url": log.store.url, "incarnation": only.incarnation, "missing": None}]
    missing = {name: error.message for name, error in log.journals.missing_nodes().items()}
    return [
        {"node": each.node, "url": each.url, "incarnation": each.incarnation, "missing": missing.get(each.node)}
        for each in log.journals.nodes.nodes
    ]


@arguments.examples(
    "pyspark-log cluster check-store /mnt/share/log",
    "pyspark-log cluster check-store /mnt/share/log --meet monday",
)
def check_store(
    address: Annotated[str, typer.Argument(metavar="ADDRESS", help="Address of the store.", show_default=False)],
    meet: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="Check it together with another machine, on which the same command runs with the same NAME: any new "
            "word. The two wait for each other for a minute.",
        ),
    ] = None,
    json: arguments.Json = False,
) -> None:
    """Check whether a store can hold a log.

    It makes the test that a store must pass when it joins a cluster, and then two users create, read and list the same
    objects at once. With --meet the other user is another machine, whose caches are then tested too. A node of a
    running cluster may be checked; nothing stays on the store.
    """
    if meet is not None and re.fullmatch(r"[A-Za-z0-9_]{1,50}", meet) is None:
        arguments.refuse("--meet", f"{meet!r} is not a word of letters and digits")
    url = absolute_url(address)
    if "://" not in url and not Path(url).is_dir():
        raise InvalidOption("address", f"there is no folder at {url}; is it mounted? Create it first")
    stores, environment = [open_store(url), open_store(url)], real_environment()
    self_test.self_test(stores[0], environment.nonce(), environment.store_threads)
    nonce = environment.nonce()
    found = store_check.meet_oneself(stores, nonce) if meet is None else store_check.meet(stores[0], meet, nonce)
    document: dict[str, Any] = {"address": url, "file_system": _file_system(url)}
    document |= {"machines": 1 if meet is None else 2, "rounds": found.rounds, "slowest_ms": found.slowest_ms}
    output.show(document, *_checked_lines(document), json=json)


def _checked_lines(document: dict[str, Any]) -> list[str]:
    lines = [
        f"{document['address']} can hold a log, as far as this test shows",
        f"machines     {document['machines']}",
        f"rounds       {document['rounds']}; the slowest answer took {document['slowest_ms']:g} ms",
    ]
    if document["file_system"] is not None:
        lines.append(f"file system  {document['file_system']}")
    untested = "whether flushed bytes survive a power failure, and faults that are rare"
    others = "; what other machines see (use --meet)" if document["machines"] == 1 else ""
    return [*lines, f"not tested   {untested}{others}"]


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
