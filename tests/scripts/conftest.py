"""A browser for the tests of pages, where one is installed."""

import pytest

from tests.scripts.browser import chromium


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    """Closed after each file: as long as it is open no other test of the process may run an event loop."""
    with chromium(tmp_path_factory.mktemp("profile")) as context:
        yield context
