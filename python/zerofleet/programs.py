"""Finds and runs the programs of zerofleet."""

from __future__ import annotations

import importlib.util
import os
import pathlib
import subprocess
import sys
from collections.abc import Iterator, Sequence
from typing import NoReturn

from .errors import ProgramError


def _folders() -> Iterator[tuple[str, pathlib.Path]]:
    """Yields the folders to search, first to last, each with the origin."""
    if folder := os.environ.get("ZEROFLEET_PROGRAMS"):
        yield "$ZEROFLEET_PROGRAMS", pathlib.Path(folder)
    # Programs with libtorch replace the programs without.
    if found := importlib.util.find_spec("zerofleet_torch"):
        for place in found.submodule_search_locations or ():
            yield "zerofleet_torch", pathlib.Path(place) / "bin"
    yield "zerofleet", pathlib.Path(__file__).parent / "bin"
    for place in filter(None, os.environ.get("PATH", "").split(os.pathsep)):
        yield "PATH", pathlib.Path(place)


def _is_program(file: pathlib.Path, origin: str) -> bool:
    if not (file.is_file() and os.access(file, os.X_OK)):
        return False
    # The commands of this package on PATH are scripts that would start themselves.
    with file.open("rb") as opened:
        return origin != "PATH" or opened.read(2) != b"#!"


def path(name: str) -> pathlib.Path:
    """Returns the path of a program such as `zerofleet` or `learner`.

    Searches `$ZEROFLEET_PROGRAMS`, the package `zerofleet_torch` if it is installed, this package, and `PATH`. Raises
    `ProgramError` with the places if the program is in none.
    """
    tried = []
    for origin, folder in _folders():
        file = folder / name
        if _is_program(file, origin):
            return file
        if origin != "PATH":
            tried.append(f"{file} ({origin})")
    raise ProgramError(f"the program {name} is missing; tried {', '.join([*tried, 'PATH'])}")


def failure(text: str) -> str:
    """Returns the error in the output of a program: from the last line with `error:`, or else the last 20 lines."""
    lines = text.strip().splitlines()
    starts = [index for index, line in enumerate(lines) if line.startswith("error: ")]
    if starts:
        return "\n".join(lines[starts[-1] :]).removeprefix("error: ")
    return "\n".join(lines[-20:]) or "the program printed nothing"


def run(arguments: Sequence[str]) -> str:
    """Runs `zerofleet` with arguments, and returns the standard output.

    Raises `ProgramError` with the text of the program if it fails.
    """
    command = [str(path("zerofleet")), *arguments]
    done = subprocess.run(
        command, stdin=subprocess.DEVNULL, capture_output=True, encoding="utf-8", errors="replace", check=False
    )
    if done.returncode != 0:
        raise ProgramError(failure(done.stderr or done.stdout), command, done.returncode)
    return done.stdout


def main() -> NoReturn:
    """Becomes the program `zerofleet`."""
    try:
        program = str(path("zerofleet"))
    except ProgramError as error:
        sys.exit(f"error: {error}")
    os.execv(program, [program, *sys.argv[1:]])
