"""Tables that other engines wrote, as they wrote them: looked at, indexed, asked, merged into and compacted.

``make soak-writers`` records them, and has many more; see ``tests/writers``.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.writers.harness import check_table
from tests.writers.recorded import held, laid_out, recorded


@pytest.fixture(scope="module", autouse=True)
def _places() -> Iterator[None]:
    with held(*{writer for writer, _ in recorded()}):
        yield


@pytest.mark.parametrize(("writer", "case"), recorded())
def test_a_recorded_table_goes_through_all_steps(writer: str, case: str) -> None:
    place, rows = laid_out(writer, case)
    found = check_table(place, reference=rows)
    assert not found.wrong and not found.refused, found
