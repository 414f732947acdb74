"""Metrics of a run: rows of `metrics.jsonl`, as dictionaries, as numbers and as a table."""

from __future__ import annotations

import importlib.util
import json
import pathlib
from collections.abc import Callable, Iterable
from typing import Any

from .errors import optional

Row = dict[str, Any]
"""The metrics of a run at one time, by name; `elapsed_seconds` is the training time over all sessions."""

Logger = Callable[[Row], None]
"""A function that receives each new row."""


class Lines:
    """Reads the JSON objects that another process appends to a file, each once."""

    def __init__(self, path: pathlib.Path, offset: int = 0) -> None:
        """Starts at a byte of the file, which need not exist yet."""
        self._path = path
        self._offset = offset

    def read(self) -> list[Row]:
        """Returns the rows since the last call. A line cut short by a crash is skipped, an incomplete one is left."""
        try:
            with self._path.open("rb") as file:
                file.seek(self._offset)
                text = file.read()
        except FileNotFoundError:
            return []
        complete = text[: text.rfind(b"\n") + 1]
        self._offset += len(complete)
        rows = []
        for line in complete.splitlines():
            try:
                row = json.loads(line)
            except ValueError:
                continue
            if isinstance(row, dict):
                rows.append(row)
        return rows


def scalars(row: Row, prefix: str = "") -> dict[str, float]:
    """Returns the numbers of a row by name, without missing ones: `loss_total`, `accuracy/raw/preserving/overall`."""
    found: dict[str, float] = {}
    for name, value in row.items():
        if isinstance(value, dict):
            found.update(scalars(value, f"{prefix}{name}/"))
        elif isinstance(value, (int, float)) and not isinstance(value, bool):
            found[prefix + name] = float(value)
    return found


def step(row: Row) -> int:
    """Returns the training step of a row; 0 before the first."""
    return int(row.get("steps") or 0)


def table(rows: Iterable[Row], library: str | None = None) -> Any:
    """Returns the numbers of rows as a DataFrame of `pandas` or `polars`, by default of the installed one."""
    # The schema of polars includes the columns that first rows lack.
    options: dict[str, dict[str, Any]] = {"pandas": {}, "polars": {"infer_schema_length": None}}
    library = library or next(filter(importlib.util.find_spec, options), "pandas")
    if library not in options:
        raise ValueError(f"no tables of the library {library}; choose pandas or polars")
    return optional(library, "a table of metrics").DataFrame([scalars(row) for row in rows], **options[library])
