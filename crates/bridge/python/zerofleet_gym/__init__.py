"""Runs Gymnasium environments for zerofleet: `python -m zerofleet_gym --env CartPole-v1 --count 64`.

A zerofleet process starts this program and speaks the protocol of docs/environments.md with it over standard input and
output. `--describe` prints what the program makes of an environment, as text.
"""
