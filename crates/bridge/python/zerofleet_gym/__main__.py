"""The command line: makes environments, describes them, serves them."""

import argparse
import functools
import importlib
import json
import os
import select
import sys
import threading
import time

from . import protocol
from .unsupported import Unsupported

DESCRIPTION = "Runs Gymnasium environments for zerofleet over standard input and output."
CLOSING_SECONDS = 2
CALL = "call:"


class Missing(Exception):
    """A package, a module or a function is missing."""


def parse():
    parser = argparse.ArgumentParser("zerofleet_gym", description=DESCRIPTION)
    parser.add_argument("--env", required=True, help="an id (CartPole-v1, module:Name-v0) or call:MODULE:FUNCTION")
    parser.add_argument("--count", type=int, default=1, help="the number of environments")
    parser.add_argument("--arguments", default="{}", help="keyword arguments of the environment, a JSON object")
    parser.add_argument("--render", action="store_true", help='make the environment with render_mode="rgb_array"')
    parser.add_argument("--channels", choices=["auto", "first", "last"], default="auto", help="the axis of channels")
    parser.add_argument("--seconds", type=float, default=60, help="the longest time of a request")
    parser.add_argument("--describe", action="store_true", help="print the spaces as text and exit")
    return parser.parse_args()


def maker(name, arguments):
    """Returns a function that makes one environment."""
    if name.startswith(CALL):
        module, _, function = name.removeprefix(CALL).partition(":")
        if not (module and function):
            raise Missing(f"{name} names no function: write call:MODULE:FUNCTION")
        try:
            make = getattr(importlib.import_module(module), function)
        except ModuleNotFoundError as error:
            if error.name != module:
                raise
            raise Missing(f"{error}; environment.modules holds the folders of modules that are not installed") from error
        return functools.partial(make, **arguments)
    try:
        import gymnasium
    except ImportError as error:
        raise Missing(f"{error}: {sys.executable} -m pip install gymnasium") from error
    # Our own checks replace the checker of Gymnasium, which costs half of a step of CartPole.
    return functools.partial(gymnasium.make, name, disable_env_checker=True, **arguments)


def make_worker(options):
    try:
        from .worker import Worker
    except ImportError as error:
        raise Missing(f"{error}: {sys.executable} -m pip install numpy") from error
    arguments = json.loads(options.arguments)
    if options.render:
        arguments.setdefault("render_mode", "rgb_array")
    make = maker(options.env, arguments)
    return Worker(options.env, make, options.count, options.channels)


def private_pipes():
    """Takes standard input and output for the protocol; what environments print goes to standard error."""
    source, sink = os.dup(0), os.dup(1)
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.dup2(2, 1)
    return source, sink


def end_with_parent(source):
    """Ends the process when the other side of the pipe is closed, also while an environment hangs."""

    def wait():
        poll = select.poll()
        poll.register(source, 0)
        poll.poll()
        # The main thread sees the end as well, and is given the time to close the environments.
        time.sleep(CLOSING_SECONDS)
        os._exit(1)

    threading.Thread(target=wait, daemon=True, name="parent").start()


def describe(worker):
    shape, observations = worker.observations.shape, worker.observations
    print(f"actions       {worker.actions.count}")
    print(f"observation   {list(shape)} of {observations.dtype}, from {list(observations.source_shape)}")
    print(f"steps at most {worker.steps_max or 'unlimited'}")


def main():
    options = parse()
    if not options.describe and (os.isatty(0) or os.isatty(1)):
        sys.exit("this program is started by zerofleet; --describe prints the spaces of an environment")
    source, sink = (0, 1) if options.describe else private_pipes()
    try:
        worker = make_worker(options)
    except Exception as error:
        is_plain = isinstance(error, (Missing, Unsupported))
        reason = str(error) if is_plain else f"{type(error).__name__}: {error}"
        if type(error).__name__ in ("NameNotFound", "NamespaceNotFound") and ":" not in options.env:
            reason += f" An id that a package registers has its name in front: PACKAGE:{options.env}"
        if options.describe:
            sys.exit(f"{options.env} is not supported: {reason}")
        protocol.send_refusal(sink, reason)
        sys.exit(1)
    if options.describe:
        return describe(worker)
    end_with_parent(source)
    seen = worker.observations
    hello = (options.count, worker.actions.count, worker.steps_max, seen.protocol_dtype, seen.shape, worker.draws)
    protocol.send_hello(sink, *hello)
    try:
        worker.serve(source, sink, options.seconds)
    except BrokenPipeError:
        pass
    worker.close()


main()
