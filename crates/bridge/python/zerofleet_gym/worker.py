"""The environments of one process, and the loop that answers requests for them."""

import re
import signal
import traceback

import numpy as np

from . import advice, pictures, protocol
from .numbers import number, truth
from .spaces import Actions, Observations
from .unsupported import Unsupported

RESET = "reset(self, *, seed=None, options=None) returns (observation, info)"
STEP = "step(self, action) returns (observation, reward, terminated, truncated, info)"
# The errors of Gymnasium's wrappers around an environment of the older interface.
OLDER = re.compile("unexpected keyword argument '(seed|options)'|values to unpack")


def seed_of(seed):
    """Folds a seed of 64 bits into the 31 bits that all environments take; smaller seeds are unchanged."""
    return (seed ^ (seed >> 32)) & 0x7FFF_FFFF


def steps_max(environment):
    """Returns the limit of steps by the environment's spec or by a TimeLimit around it; 0 without one."""
    limits = []
    while environment is not None:
        limits.append(getattr(getattr(environment, "spec", None), "max_episode_steps", None))
        # An environment that a function makes has no spec, and Gymnasium's TimeLimit no public attribute.
        limits.append(getattr(environment, "__dict__", {}).get("_max_episode_steps"))
        environment = getattr(environment, "__dict__", {}).get("env")
    return min((int(limit) for limit in limits if limit), default=0)


class Worker:
    """`count` environments made by `make`. One that raises an exception is made again before its next episode."""

    def __init__(self, name, make, count, channels):
        self.make = make
        self.environments = [make() for _ in range(count)]
        first = self.environments[0]
        self.actions, self.observations = spaces_of(name, first, channels)
        self.steps_max = steps_max(first)
        self.draws = getattr(first, "render_mode", None) == "rgb_array"
        self.rows = np.zeros((count, *self.observations.shape), self.observations.dtype.newbyteorder("<"))
        self.view = self.observations.view(self.rows)

    def begin(self, index, row, seed):
        """Begins the episode of an environment and writes the first observation into a row. Returns (reward, flags)."""
        if self.environments[index] is None:
            self.environments[index] = self.make()
        result = self.environments[index].reset(seed=seed_of(seed))
        if not (isinstance(result, tuple) and len(result) == 2):
            raise ValueError(f"reset() returned {described(result)}; {older(RESET)}")
        self.observations.write(result[0], self.view, row)
        return 0, 0

    def step(self, index, row, action):
        """Takes an action in an environment and writes what follows into a row. Returns (reward, flags)."""
        if self.environments[index] is None:
            raise ValueError("the environment has no episode under way")
        result = self.environments[index].step(self.actions.start + action)
        if not (isinstance(result, tuple) and len(result) == 5):
            raise ValueError(f"step() returned {described(result)}; {older(STEP)}")
        observation, reward, terminated, truncated, _ = result
        self.observations.write(observation, self.view, row)
        flags = protocol.TERMINATED if truth("terminated", terminated) else 0
        flags |= protocol.TRUNCATED if truth("truncated", truncated) else 0
        return number("reward", reward), flags

    def fail(self, index, row, error):
        """Drops an environment after an exception. Returns the message."""
        traceback.print_exc()
        self.rows[row] = 0
        close(self.environments[index])
        self.environments[index] = None
        return reason_of(error)

    def draw(self, index):
        """Draws an environment. Returns (picture, message), one of which is None.

        A slow render() is not interrupted, since the episode would go on in a state that is changed in part.
        """
        try:
            return pictures.encode(self.environments[index].render()), None
        except (Exception, SystemExit) as error:
            return None, f"{type(error).__name__}: {error}"

    def answer(self, request):
        """Performs a request; returns the rewards, the flags, the observations and the messages of failures."""
        kind, indices, values = request
        act = self.begin if kind == protocol.BEGIN else self.step
        rewards, flags, messages = [], bytearray(), []
        for row, (index, value) in enumerate(zip(indices, values)):
            try:
                reward, flag = act(index, row, value)
            except (Exception, SystemExit) as error:
                reward, flag = 0, protocol.FAILED
                messages.append(self.fail(index, row, error))
            rewards.append(reward)
            flags.append(flag)
        # A reward beyond float32 becomes infinite, which the receiver reports.
        with np.errstate(over="ignore"):
            rewards = np.array(rewards, np.float64).astype("<f4")
        return rewards, flags, self.rows[: len(indices)], messages

    def serve(self, source, sink, seconds):
        """Answers requests until the other side closes `source`.

        The kernel ends a process that hangs for twice its time in a request, also if no parent is left to do so.
        """
        while (request := protocol.read_request(source)) is not None:
            kind, indices, _ = request
            draws = kind == protocol.RENDER
            signal.setitimer(signal.ITIMER_REAL, 2 * seconds)
            answer = self.draw(indices[0]) if draws else self.answer(request)
            signal.setitimer(signal.ITIMER_REAL, 0)
            send = protocol.send_picture if draws else protocol.send_answer
            send(sink, *answer)

    def close(self):
        for environment in self.environments:
            close(environment)


def spaces_of(name, environment, channels):
    """Returns the Actions and the Observations of an environment; raises Unsupported with advice on both."""
    for attribute in ("action_space", "observation_space", "reset", "step"):
        if not hasattr(environment, attribute):
            raise Unsupported(f"a {type(environment).__name__} was made, which is no environment: it has no {attribute}")
    found, faults = {}, {}
    for part, make in (
        ("actions", lambda: Actions(environment.action_space)),
        ("observations", lambda: Observations(environment.observation_space, channels)),
    ):
        try:
            found[part] = make()
        except Unsupported as fault:
            faults[part] = str(fault)
    if faults:
        advice.refuse(name, environment, faults, lambda space: is_supported(space, channels))
    return found["actions"], found["observations"]


def is_supported(space, channels):
    """Returns true if observations of this space are supported."""
    try:
        return Observations(space, channels) is not None
    except Unsupported:
        return False


def described(result):
    """Returns what a method returned, in words."""
    if isinstance(result, (tuple, list)):
        return f"a {type(result).__name__} of {len(result)} values"
    return f"a {type(result).__name__}"


def older(interface):
    """Returns the interface of a method, for environments that have another one."""
    return f"in Gymnasium, {interface}: is this an environment of the older gym?"


def reason_of(error):
    """Returns the text of an exception, with a hint where the interface of the older gym raises it."""
    text = f"{type(error).__name__}: {error}"
    if isinstance(error, (TypeError, ValueError)) and OLDER.search(str(error)):
        method = STEP if "expected 5" in str(error) else RESET
        return f"{text}; {older(method)}"
    return text


def close(environment):
    """Closes an environment, if it can be closed."""
    try:
        getattr(environment, "close", lambda: None)()
    except Exception:
        traceback.print_exc()
