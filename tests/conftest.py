"""What all tests share: a random test may be slow, for the machine may be busy with others beside it.

Each test is bounded by pytest's timeout alone. ``make test`` tries the same random cases everywhere, so that
what passes once passes again; the soak targets try others each time.
"""

from __future__ import annotations

import gc

from hypothesis import HealthCheck, settings

from tests.examples import ALL_CASES

settings.register_profile(
    "busy", deadline=None, derandomize=not ALL_CASES, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("busy")


def pytest_collection_finish() -> None:
    """Let the garbage collector pass by what is there before the first test: modules, classes and cases."""
    gc.collect()
    gc.freeze()
