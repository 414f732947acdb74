"""The error of environments that zerofleet does not take. Needs no other module, so that it can always be reported."""


class Unsupported(Exception):
    """The environment has actions or observations that are not supported."""
