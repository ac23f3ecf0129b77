"""Tables that other engines wrote, as they wrote them: looked at, indexed, asked, merged into and compacted.

``make soak-writers`` records them, and has many more; see ``tests/writers``.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from skipstone_core.maintenance.policies import EqualityDeletesPolicy, MaintenancePolicy, MaintenanceStep

from tests.spark.lake import read_all
from tests.spark.merge_bed import rows_of
from tests.writers.harness import WriterBed, check_table
from tests.writers.recorded import held, laid_out, recorded

#: Tables in which a writer left equality deletes.
WITH_EQUALITY_DELETES = [("flink", "stream-v2"), ("flink", "stream-v3"), ("sail", "equality-deletes")]


@pytest.fixture(scope="module", autouse=True)
def _places() -> Iterator[None]:
    with held(*{writer for writer, _ in recorded()}):
        yield


@pytest.mark.parametrize(("writer", "case"), recorded())
def test_a_recorded_table_goes_through_all_steps(writer: str, case: str) -> None:
    place, rows = laid_out(writer, case)
    found = check_table(place, reference=rows)
    assert not found.wrong and not found.refused, found


@pytest.mark.parametrize(("writer", "case"), WITH_EQUALITY_DELETES)
def test_pyiceberg_reads_a_table_whose_equality_deletes_were_resolved(writer: str, case: str) -> None:
    place, rows = laid_out(writer, case)
    bed = WriterBed(place.root)
    bed.name = f"resolved_{case.replace('-', '_')}"
    table = bed.catalog.register_table(bed.ref.identifier, place.metadata)
    with pytest.raises(ValueError, match="does not yet support equality deletes"):
        table.scan().to_arrow()
    before = bed.files()
    policy = MaintenancePolicy(equality_deletes=EqualityDeletesPolicy(min_files=1))
    (step,) = bed.run(bed.maintenance((MaintenanceStep.RESOLVE_EQUALITY_DELETES,), policy)).steps
    assert step.is_done and step.counts["equalityDeletesResolved"] > 0, step
    assert bed.files().files["path"].to_pylist() == before.files["path"].to_pylist()
    expected = rows_of(rows)
    assert rows_of(bed.table().scan().to_arrow()) == expected
    assert rows_of(read_all(bed.table())) == expected
    bed.catalog.close()
