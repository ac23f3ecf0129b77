"""A lake in a folder of its own, on a path with blanks; nothing of it lives on after a test."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from skipstone_local.places import RootFolder

from tests.local.lake import Lake, kill


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[Lake]:
    made = Lake(RootFolder(tmp_path / "my lake" / ".skipstone"))
    made.claim.mkdir(parents=True)
    yield made
    left = made.strays()
    kill(left)
    assert left == [], "processes of pods outlived the process that served their folder"
