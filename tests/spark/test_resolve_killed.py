"""A run of ResolveEqualityDeletes, killed by SIGKILL before and after each of its writes.

Whatever is left is the table as it was: all rows, by the equality deletes or by what took their place. The next run
does the rest. `make soak-maintain` kills at every step.
"""

from __future__ import annotations

import signal
from dataclasses import replace
from pathlib import Path

import pytest
from skipstone_core.contract.reports import EXIT_COMMITTED

from tests.examples import ALL_CASES, turn
from tests.spark.kept import Kept
from tests.spark.resolve_bed import ResolveBed
from tests.spark.test_compaction_killed import drive

#: Kills of one run in `make test`.
KILLS = 3


def make_table(root: Path, version: int) -> list[int]:
    """Three files with deletes of all kinds; the numbers of the rows."""
    bed = ResolveBed(root, version=version)
    bed.make()
    for start in range(0, 30, 10):
        bed.add(*({"id": number, "k": f"k{number % 7}"} for number in range(start, start + 10)))
    bed.delete_rows(lambda place: place in (1, 4))
    bed.delete_equal(["id"], [{"id": 3}, {"id": 14}, {"id": 99}])
    bed.delete_equal(["k"], [{"k": "k5"}])
    bed.catalog.close()
    return sorted(bed.live)


@pytest.mark.parametrize("version", (2, 3) if ALL_CASES else (2 + turn(2),))
def test_a_run_killed_at_any_write_leaves_the_rows(tmp_path_factory: pytest.TempPathFactory, version: int) -> None:
    root = tmp_path_factory.mktemp("lake")
    rows = make_table(root, version)
    kept = Kept(root, tmp_path_factory.mktemp("kept"))
    bed = ResolveBed(root, version=version)
    whole = drive(bed, bed.resolution(), "0")
    assert whole.code == EXIT_COMMITTED, whole.errors
    assert (bed.numbers_held(), bed.equality_files()) == (rows, 0)
    bed.catalog.close()
    places = range(1, len(whole.steps) + 1)
    first = turn(len(places) // KILLS)
    for fatal in places if ALL_CASES else places[first :: len(places) // KILLS]:
        bed = ResolveBed(kept.restored(), version=version)
        request = bed.resolution()
        ended = drive(bed, request, str(fatal))
        assert ended.code == -signal.SIGKILL, ended.errors
        said = f"killed at step {fatal}, {ended.steps[-1]}"
        assert bed.numbers_held() == rows, said
        assert all(request.run_id in path for path in bed.strays()), said
        left = bed.strays()
        (step,) = bed.run(replace(request, attempt=2, run_id=f"{request.run_id[:-1]}2")).steps
        assert step.is_done, (step, said)
        assert (bed.numbers_held(), bed.equality_files()) == (rows, 0), said
        assert bed.strays() == left, said
        bed.catalog.close()
