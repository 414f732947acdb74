"""Marks the wheel as one of this platform, since the package has programs and no extension."""

from setuptools import setup
from setuptools.dist import Distribution


class WithPrograms(Distribution):
    """A distribution for one platform."""

    def has_ext_modules(self) -> bool:
        """Returns true: the wheel gets the tag of this platform."""
        return True


setup(distclass=WithPrograms, options={"bdist_wheel": {"py_limited_api": "cp310"}})
