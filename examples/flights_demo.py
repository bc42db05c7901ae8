"""A year of flights through a topic on three nodes: one loses its disk, and both queries are killed half-way.

Two Spark programs run at the same time: `flights/writer.py` streams 336,776 flights into a topic of 8 partitions,
keyed by tail number; `flights/reader.py` streams them out and adds up the delays of each carrier. This program, which
does not use Spark, watches both, kills each with SIGKILL, and starts it again from its checkpoint. Meanwhile it wipes
one node's folder and damages a file of another, and repairs both afterwards with the command line. At the end
it proves, from the bytes on each node and the input file alone, that nothing was lost, duplicated or reordered.
"""

from __future__ import annotations

import argparse
import contextlib
import shutil
import signal
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

from flights import dataset, proof, report
from flights.driver import Driver
from flights.incidents import Incidents
from flights.nodes import Nodes
from flights.progress import Result, Unfinished, batch_in_log, newest, rows_in_log, topic_of
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn

from pyspark_log_coordinator.environment import real_environment
from pyspark_log_coordinator.log.log import Log
from pyspark_log_storage.stores.addresses import open_store

if TYPE_CHECKING:
    from collections.abc import Iterator

KILL_WRITER_PERCENT = 40
KILL_READER_PERCENT = 55
FLIGHTS_MIN = 1000
READER_BATCH_FILES = 2
SILENCE_SECONDS_MAX = 120
POLL_SECONDS = 0.01
PLAIN_WIDTH = 160
"""The width of the output if it is not a terminal."""


class Demo:
    """One run, from the input file to the proof."""

    def __init__(self, console: Console, folder: Path, scratch: Path, limit: int | None) -> None:
        """Write what is worth keeping into `folder`, and everything else into `scratch`."""
        self.began = time.monotonic()
        self.console = console
        self.flights = dataset.read(limit)
        self.total = self.flights.num_rows
        files = folder / "input"
        self.pieces = dataset.write_pieces(self.flights, files)
        self.nodes = Nodes(folder, self.show)
        self.log = Log([open_store(each) for each in self.nodes.address.split(",")], real_environment())
        self.incidents = Incidents(self.nodes, self.log, self.say)
        self.result = Result(folder / "result.json")
        self.writer_checkpoint = folder / "checkpoints" / "writer"
        self.reader_checkpoint = folder / "checkpoints" / "reader"
        log = self.nodes.address
        self.writer = Driver("writer", [str(files), log, str(self.writer_checkpoint)], folder, scratch)
        batch_rows = str(READER_BATCH_FILES * self.total // self.pieces)
        reader_arguments = [log, str(self.reader_checkpoint), str(folder / "result.json"), batch_rows]
        self.reader = Driver("reader", reader_arguments, folder, scratch)
        self.kills: dict[str, Unfinished] = {}

    def say(self, who: str, what: str) -> None:
        """Print one line of the story."""
        seconds = time.monotonic() - self.began
        self.console.print(f"[dim]{seconds:4.0f} s[/]  [bold]{who:6}[/]  {what}", highlight=False)

    def show(self, line: str) -> None:
        """Print a line of a command's output, cut to the width of the terminal."""
        self.console.print(f"                {line}", style="cyan", markup=False, no_wrap=True, overflow="ellipsis")

    def run(self) -> None:
        self.say("demo", f"{self.total:,} flights of 2013, in {self.pieces} files")
        self.nodes.create()
        self.log.open(create=False)
        try:
            with self._bars() as (written_bar, read_bar):
                self._stream(written_bar, read_bar)
        finally:
            self.writer.end()
            self.reader.end()

    def _stream(self, written_bar, read_bar) -> None:
        """Run both programs to their ends, and kill each once."""
        self.writer.start()
        self.say("writer", "started: from files into the topic, keyed by tail number")
        seen, heard = (0, 0), time.monotonic()
        asked = False
        while self.reader.exit_code() is None:
            written, read = rows_in_log(self.log), self.result.refresh()
            if (written, read) != seen:
                seen, heard = (written, read), time.monotonic()
                written_bar(written)
                read_bar(read)
            self.incidents.watch(written * 100 // self.total)
            if written * 100 >= KILL_WRITER_PERCENT * self.total and not self.writer.kills:
                self._kill_writer()
            if read * 100 >= KILL_READER_PERCENT * self.total and not self.reader.kills:
                self._kill_reader()
            if written and not self.reader.starts:
                self.reader.start()
                self.say("reader", "started: from the topic into delays by carrier")
            if not asked and self.reader.kills and self.writer.exit_code() == 0:
                self.say("writer", "ended: all files are in the topic")
                self.reader.finish()
                asked = True
            self._check_alive(heard)
            time.sleep(POLL_SECONDS)
        read_bar(self.result.refresh())
        self.say("reader", "ended: it has read the whole topic")

    def _kill_writer(self) -> None:
        # Not before the next micro-batch is in the checkpoint: if its file is, and the micro-batch is not, Spark puts
        # that file and the one after it into one micro-batch, and reads the larger one first.
        planned = newest(self.writer_checkpoint, "offsets")
        while newest(self.writer_checkpoint, "offsets") == planned and self.writer.exit_code() is None:
            time.sleep(0.001)
        self.writer.kill()
        found = self._unfinished(rows_in_log(self.log), self.writer_checkpoint, batch_in_log(self.log))
        self._restart(self.writer, found, f"batch {found.planned} is in the log")

    def _kill_reader(self) -> None:
        self.reader.kill()
        found = self._unfinished(self.result.refresh(), self.reader_checkpoint, self.result.batch)
        self._restart(self.reader, found, f"batch {found.planned} is in the result")

    def _unfinished(self, rows: int, checkpoint: Path, effective: int) -> Unfinished:
        planned, committed = newest(checkpoint, "offsets"), newest(checkpoint, "commits")
        return Unfinished(rows * 100 // self.total, planned, committed, effective)

    def _restart(self, driver: Driver, found: Unfinished, replay: str) -> None:
        self.kills[driver.name] = found
        self.say(driver.name, f"[red]killed with SIGKILL at {found.percent} %[/]")
        if found.is_replay:
            self.say("", f"{replay}, not recorded by Spark: it is repeated")
        driver.start()
        self.say(driver.name, "started again from its checkpoint")

    def _check_alive(self, heard: float) -> None:
        """Stop the demo if a program failed or hangs."""
        for driver in (self.writer, self.reader):
            if driver.exit_code() not in {None, 0}:
                self._give_up(driver, f"it ended with exit code {driver.exit_code()}")
        if time.monotonic() - heard > SILENCE_SECONDS_MAX:
            why = f"it has made no progress for {SILENCE_SECONDS_MAX} s (on a busy machine run the demo again later)"
            self._give_up(self.reader if self.writer.exit_code() == 0 else self.writer, why)

    def _give_up(self, driver: Driver, why: str) -> None:
        lines = driver.output.read_text(errors="replace").splitlines()
        self.console.print(*lines[-40:], sep="\n", markup=False, highlight=False)
        raise SystemExit(f"the {driver.name} failed: {why}; above is the end of what it printed")

    @contextlib.contextmanager
    def _bars(self) -> Iterator[tuple]:
        """Show the progress of both programs below the story, on a terminal."""
        columns = (
            TextColumn("        [bold]{task.description:6}"),
            BarColumn(bar_width=30),
            TextColumn("{task.percentage:3.0f} %  {task.completed:,.0f} flights"),
        )
        with Progress(*columns, console=self.console, transient=True, disable=not self.console.is_terminal) as bars:
            tasks = [bars.add_task(name, total=self.total) for name in ("writer", "reader")]
            yield tuple(lambda rows, task=task: bars.update(task, completed=rows) for task in tasks)

    def repair(self) -> None:
        """Let the wiped node catch up, and repair the damaged file."""
        if self.incidents.wiped is None or self.incidents.damaged is None:
            raise SystemExit("the programs ended before one node was wiped and another damaged")
        self.nodes.renew(self.incidents.wiped)
        self.nodes.repair(self.incidents.damaged)
        self.nodes.verify()

    def prove(self) -> None:
        """Raise `Disproved` unless the topic, on each node, and the result are right; print what was proved."""
        self.log.open(create=False)
        handle = topic_of(self.log)
        proof.check_in_sync(handle.journal.state)
        first, *others = (self.log.node_store(node) for node in self.log.cluster.state.nodes)
        rows = proof.rows_on_node(handle, first)
        aircraft = proof.check_topic(rows, self.flights)
        for store in others:
            if proof.rows_on_node(handle, store) != rows:
                raise proof.Disproved(f"the rows at {store.url} are not those at {first.url}")
        expected = dataset.delays_by_carrier(self.flights)
        if self.result.carriers != expected:
            raise proof.Disproved(f"the reader's sums are {self.result.carriers}, the input's are {expected}")
        self.say("proof", f"[green]{self.total:,} flights are in the topic, each once, unchanged[/]")
        self.say("proof", "[green]each of the three nodes has all of them, and is in sync[/]")
        self.say("proof", f"[green]each of {aircraft:,} aircraft has its flights in their order[/]")
        self.say("proof", "[green]the reader's sums are those of the input file[/]")

    def report(self) -> None:
        report.print_delays(self.console, self.result.carriers)
        writer_batches = newest(self.writer_checkpoint, "commits") + 1
        reader_batches = newest(self.reader_checkpoint, "commits") + 1
        report.print_happened(
            self.console,
            [
                (self.writer, writer_batches, self.kills["writer"]),
                (self.reader, reader_batches, self.kills["reader"]),
            ],
        )
        elsewhere = self.reader.printed("is damaged")  # a warning for each chunk that it read from another node
        report.print_nodes(self.console, self.log, topic_of(self.log).journal.state, self.incidents, elsewhere)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--flights", type=int, metavar="N", help="only the first N flights of the year")
    parser.add_argument("--keep", type=Path, metavar="DIR", help="keep log, checkpoints and output in a new folder")
    chosen = parser.parse_args()
    if chosen.flights is not None and chosen.flights < FLIGHTS_MIN:
        parser.error(f"--flights takes {FLIGHTS_MIN:,} or more: a shorter run ends before it can be killed half-way")
    if chosen.keep is not None and chosen.keep.exists():
        parser.error(f"{chosen.keep} exists; name a folder that does not")
    console = Console(highlight=False)
    if not console.is_terminal:
        console = Console(highlight=False, width=PLAIN_WIDTH)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("terminated"))  # so that nothing is left behind
    # A short name: Spark puts Unix sockets there, and their paths are limited to about 100 characters.
    scratch = Path(tempfile.mkdtemp(prefix="f-"))
    try:
        folder = (chosen.keep or scratch / "demo").absolute()
        folder.mkdir(parents=True)
        demo = Demo(console, folder, scratch, chosen.flights)
        demo.run()
        demo.repair()
        try:
            demo.prove()
        except proof.Disproved as error:
            raise SystemExit(f"disproved: {error}") from error
        demo.report()
        seconds = time.monotonic() - demo.began
        console.print(f"Exactly once: proved for {demo.total:,} flights, in {seconds:.0f} s.", style="bold green")
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


if __name__ == "__main__":
    main()
