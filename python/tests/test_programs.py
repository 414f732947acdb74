"""The search for programs, and their errors."""

from __future__ import annotations

import pathlib
import subprocess
import sys
from collections.abc import Callable

import pytest

from zerofleet import ProgramError, programs

Program = Callable[..., pathlib.Path]


def test_the_folder_of_the_environment_comes_first(program: Program) -> None:
    written = program("")
    assert programs.path("zerofleet") == written


def test_a_missing_program_is_an_error_with_the_places(program: Program) -> None:
    with pytest.raises(ProgramError, match=r"the program learner-9 is missing; tried .*learner-9 \(\$ZEROFLEET"):
        programs.path("learner-9")


def test_a_script_on_the_path_is_no_program(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ZEROFLEET_PROGRAMS", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    for name, text in [("script-9", "#!/bin/sh\n"), ("binary-9", "\x7fELF")]:
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o755)
    assert programs.path("binary-9") == tmp_path / "binary-9"
    with pytest.raises(ProgramError, match="missing"):
        programs.path("script-9")


def test_the_package_with_libtorch_replaces_the_programs(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("ZEROFLEET_PROGRAMS", raising=False)
    binary = tmp_path / "zerofleet_torch" / "bin" / "learner-9"
    binary.parent.mkdir(parents=True)
    (tmp_path / "zerofleet_torch" / "__init__.py").touch()
    binary.touch(0o755)
    monkeypatch.syspath_prepend(str(tmp_path))
    assert programs.path("learner-9") == binary


def test_run_returns_the_output_and_raises_the_text_of_the_program(program: Program) -> None:
    program("import sys; print(sys.argv[1:])")
    assert programs.run(["weights", "ls"]) == "['weights', 'ls']\n"
    program("import sys; print('warning: odd\\nerror: no run first\\n  in runs', file=sys.stderr); sys.exit(3)")
    with pytest.raises(ProgramError) as raised:
        programs.run(["weights"])
    assert str(raised.value) == "no run first\n  in runs"
    assert raised.value.returncode == 3
    assert raised.value.command[1:] == ["weights"]


def test_an_entry_point_becomes_the_program(program: Program) -> None:
    program("import sys; print(sys.argv[1:]); sys.exit(5)")
    command = [sys.executable, "-c", "from zerofleet import programs; programs.main()", "train", "--help"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (5, "['train', '--help']\n"), done.stderr
