"""The browser of the tests of pages."""

from tests.scripts.conftest import browser

__all__ = ["browser"]
