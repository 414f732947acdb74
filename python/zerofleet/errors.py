"""The exceptions of the package."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:

    class Error(Exception):
        """An operation that failed, with the reason as text. Every other exception of the package derives from it."""
else:
    from zerofleet._zerofleet import Error


class ProgramError(Error):
    """A program of zerofleet that failed, with the text that it printed."""

    def __init__(self, text: str, command: Sequence[str] = (), returncode: int | None = None) -> None:
        """Holds the text, the command line and the exit status; `None` if the program did not run."""
        super().__init__(text)
        self.command = list(command)
        self.returncode = returncode


def missing(package: str, purpose: str) -> ImportError:
    """Returns the exception for an optional package that is not installed."""
    return ImportError(f"{purpose} needs the package {package}: pip install {package}")


def optional(module: str, purpose: str) -> Any:
    """Imports a module of an optional package."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise missing(module.partition(".")[0], purpose) from error
