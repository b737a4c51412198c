"""The machine of each test."""

from tests.support.sysfs import sysfs

__all__ = ["sysfs"]
