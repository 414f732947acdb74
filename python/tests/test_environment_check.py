"""The check of environments of Gymnasium, by the program and without."""

import importlib
import os
import sys

import pytest

import zerofleet as zf
from zerofleet import environment_check, programs

OUTPUT = """# gym:LunarLander-v3: 4 actions, observations [8, 1, 1] of float32
# at most 1000 steps, 32 bytes each before compression
# trial episode with random actions: 125 steps, return -111.248, complete
# process output: a warning
[environment]
python = "python3"
"""

needs_programs = pytest.mark.skipif("ZEROFLEET_PROGRAMS" not in os.environ, reason="needs ZEROFLEET_PROGRAMS")


def make():
    """Stands for a function of a user."""


def test_the_output_of_the_program_is_read(monkeypatch):
    calls = []
    monkeypatch.setattr(programs, "run", lambda arguments: calls.append(arguments) or OUTPUT)
    found = environment_check.check("gym:LunarLander-v3")
    assert calls == [
        ["env", "describe", "--gym", "LunarLander-v3", "--set", f'environment.python="{sys.executable}"'],
    ]
    assert (found.game, found.actions, found.observation_shape) == ("gym:LunarLander-v3", 4, (8, 1, 1))
    assert (found.values, found.steps_max, found.step_bytes) == ("float32", 1000, 32)
    assert (found.trial_steps, found.trial_return, found.trial_end) == (125, -111.248, "complete")
    assert found.output == ("a warning",)
    assert found.section == '[environment]\npython = "python3"\n'


def test_a_description_without_a_trial_episode_is_read():
    lines = OUTPUT.splitlines(keepends=True)
    found = environment_check.parse("".join(lines[:2] + lines[4:]))
    assert (found.trial_steps, found.trial_return, found.trial_end, found.output) == (None, None, None, ())


def test_other_output_is_an_error():
    with pytest.raises(zf.Error, match="unexpected output"):
        environment_check.parse("nothing")


def test_a_function_is_named_by_module_and_directory():
    name, directory = environment_check.located(make)
    assert name == f"call:{__name__}:make"
    assert os.path.samefile(os.path.join(directory, *__name__.split(".")) + ".py", __file__)
    # A module in a package is imported from the directory of the package.
    name, directory = environment_check.located(environment_check.parse)
    assert name == "call:zerofleet.environment_check:parse"
    assert os.path.isdir(os.path.join(directory, "zerofleet"))


def test_a_function_that_no_process_can_import_is_refused():
    with pytest.raises(ValueError, match="top of a module"):
        environment_check.check(lambda: None)


@needs_programs
def test_the_program_tries_an_environment():
    found = zf.check("CartPole-v1")
    assert (found.game, found.actions, found.observation_shape) == ("gym:CartPole-v1", 2, (4, 1, 1))
    assert found.trial_steps is not None and found.trial_steps == found.trial_return


@needs_programs
def test_an_unsuitable_environment_is_an_error_with_the_reason(tmp_path, monkeypatch):
    with pytest.raises(zf.Error, match="NoSuch-v0"):
        zf.check("NoSuch-v0")
    (tmp_path / "broken_corridor.py").write_text("def make():\n    raise RuntimeError('the door is shut')\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(zf.Error, match="the door is shut"):
        zf.check(importlib.import_module("broken_corridor").make)
