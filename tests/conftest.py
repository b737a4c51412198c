"""Settings for all tests. On CI, hypothesis tries the same examples each time: red must mean a changed program."""

import gc
import os

import hypothesis
import pytest

hypothesis.settings.register_profile("ci", derandomize=True, deadline=None, print_blob=True)
hypothesis.settings.register_profile("here", deadline=None)  # a busy machine is no fault of the program
hypothesis.settings.load_profile("ci" if os.environ.get("CI") else "here")

NO_AUTHORITIES = {"SSL_CERT_FILE": os.devnull, "SSL_CERT_DIR": os.devnull}


def pytest_collection_finish(session: pytest.Session) -> None:
    """Two things that cost time and change nothing.

    Thousands of tests stay in memory until the end: the garbage collector need not look at them again and again.
    Nobody outside is asked, except for programs that tests/e2e needs: so no process has to read the authorities that
    the system trusts, as all do that import aiohttp.
    """
    gc.collect()
    gc.freeze()
    if not any(item.nodeid.startswith("tests/e2e/") for item in session.items):
        os.environ |= NO_AUTHORITIES
