"""Fixtures: programs as small scripts, and the real programs."""

from __future__ import annotations

import os
import pathlib
import signal
import sys
from collections.abc import Callable

import pytest

# A shell starts background jobs with the signal ignored, and programs of the tests would inherit that.
signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture
def program(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., pathlib.Path]:
    """Writes programs in Python, which the package then finds."""
    folder = tmp_path / "programs"
    folder.mkdir()
    monkeypatch.setenv("ZEROFLEET_PROGRAMS", str(folder))

    def write(text: str, name: str = "zerofleet") -> pathlib.Path:
        path = folder / name
        path.write_text(f"#!{sys.executable}\n{text}")
        path.chmod(0o755)
        return path

    return write


@pytest.fixture
def real_programs() -> str:
    """Skips a test without the real programs."""
    folder = os.environ.get("ZEROFLEET_PROGRAMS")
    if not folder:
        pytest.skip("ZEROFLEET_PROGRAMS names no folder with the programs")
    return folder
