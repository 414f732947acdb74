"""Files in the directory of a run: the run file, files of JSON, and the kept weights."""

from __future__ import annotations

import importlib
import json
import pathlib
import sys
from typing import Any

from .errors import Error


def config(run: pathlib.Path, name: str = "config.toml") -> dict[str, Any]:
    """Returns the effective run file: each section by name, with every key. Model folders call it `run.toml`."""
    toml = importlib.import_module("tomllib" if sys.version_info >= (3, 11) else "tomli")
    return dict(toml.loads((run / name).read_text(encoding="utf-8")))


def read_json(file: pathlib.Path) -> dict[str, Any]:
    """Returns a JSON object that a session writes; empty before."""
    try:
        return dict(json.loads(file.read_bytes()))
    except FileNotFoundError:
        return {}
    except (ValueError, TypeError) as error:
        raise Error(f"{file} is damaged: {error}") from error


def manifests(run: pathlib.Path) -> dict[int, pathlib.Path]:
    """Returns the manifests of the weights that the arena and the learner keep, by version in ascending order."""
    files = [file for folder in ("arena", "weights") for file in (run / folder).glob("v*.json")]
    found = {int(file.stem[1:]): file for file in files if file.stem[1:].isdecimal()}
    return dict(sorted(found.items()))
