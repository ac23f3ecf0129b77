"""What all tests share: a random test may be slow, for the machine may be busy with others beside it; an S3 server.

Each test is bounded by pytest's timeout alone. ``make test`` tries the same random cases everywhere, so that
what passes once passes again; the soak targets try others each time.
"""

from __future__ import annotations

import gc
import uuid
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings

from tests.examples import ALL_CASES, SHARE
from tests.s3client import S3Client
from tests.s3server import OWNER, REGION, S3Server, s3_server
from tests.turns import without_turn

settings.register_profile(
    "busy", deadline=None, derandomize=not ALL_CASES, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("busy")


def pytest_collection_finish() -> None:
    """Let the garbage collector pass by what is there before the first test: modules, classes and cases."""
    gc.collect()
    gc.freeze()


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Under SKIPSTONE_SHARE, leave tests that do not have their turn to other commits."""
    if not SHARE or ALL_CASES:
        return
    quick = [item for item in items if not item.get_closest_marker("soak")]
    for place in without_turn([item.nodeid for item in quick]):
        quick[place].add_marker(pytest.mark.soak)


@pytest.fixture(scope="session")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    """One server for all tests of this process."""
    with s3_server(tmp_path_factory.mktemp("s3")) as server:
        yield server


@pytest.fixture
def bucket(s3: S3Server) -> S3Client:
    """An empty bucket of the test's own, and a client that speaks to it as its owner."""
    name = f"test-{uuid.uuid4().hex[:16]}"
    s3.make_bucket(name)
    return S3Client(s3.endpoint, name, REGION, OWNER)
