"""Whoever reads through a planning server gets the rows of the table or an error, whatever goes wrong meanwhile.

``make soak-planning-faults`` takes many more reads (SKIPSTONE_SOAK_CASES of each catalog, SKIPSTONE_SOAK_SEED).
"""

from __future__ import annotations

import json
import os
import random
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack

import pytest
from skipstone.tables.decoding.decodes import FOLDER_VARIABLE

from tests.examples import ALL_CASES, cases
from tests.unit.planning_faults import (
    Draw,
    Outcome,
    World,
    WrongRows,
    check,
    draw,
    read_by_pyiceberg,
    run,
)
from tests.unit.planning_filters import Condition
from tests.unit.planning_history import History
from tests.unit.planning_worlds import bucket_world, rest_world, sql_world

SEED = int(os.environ.get("SKIPSTONE_SOAK_SEED", "1"))
NUMBERS = range(int(os.environ.get("SKIPSTONE_SOAK_CASES", "0")) or cases(2, 180))
_WORLDS = {"Sql": sql_world, "Rest": rest_world, "bucket": bucket_world}
ALL = Condition((), is_any=False)


@pytest.fixture(scope="module", params=["Sql", "Rest", *(["bucket"] if ALL_CASES else [])])
def world(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """A catalog and two replicas before it."""
    root = tmp_path_factory.mktemp("faults")
    with ExitStack() as stack, pytest.MonkeyPatch.context() as patch:
        patch.setenv(FOLDER_VARIABLE, str(root / "decodes"))
        yield _WORLDS[request.param](stack, root, read_by_pyiceberg)


@pytest.mark.timeout(20_000)
def test_a_read_gives_rows_that_the_table_had_or_an_error(world: World) -> None:
    outcomes: list[Outcome] = []
    failures: list[str] = []
    for number in NUMBERS:
        drawn = draw(world, SEED, number)
        try:
            outcomes.append(run(world, SEED, drawn))
            print(f"{drawn} => {outcomes[-1].result} {outcomes[-1].error} {outcomes[-1].begun}", flush=True)
        except (AssertionError, RuntimeError) as failure:
            print(f"{drawn} => WRONG {failure} {failure.__cause__ or ''}", flush=True)
            failures.append(str(failure))
    print(f"{len(outcomes)} reads, {sum(bool(each.begun) for each in outcomes)} met a fault")
    for result, count in Counter(each.result for each in outcomes).most_common():
        print(f"  {count} {result}")
    assert failures == []


def test_a_file_that_is_left_out_is_found(world: World) -> None:
    """The verdict itself: a server that loses a file, and one that answers for another table."""
    world.settle()
    history = History(world.lake, random.Random(5))
    history.begin()
    drawn = Draw(0, ALL, None, is_warm=False, faults=())
    assert check(world, history, drawn, None, len(history.states) - 1) == "as it was"
    others = History(world.lake, random.Random(6))
    others.begin()
    try:
        for kind, alter in (("plan", _without_a_file), ("tasks", _without_a_file), ("plan", _without_pages)):
            world.balancer.alter = lambda asked, content, kind=kind, alter=alter: (  # type: ignore[misc]
                alter(content) if asked == kind else content
            )
            with pytest.raises(WrongRows):
                check(world, history, drawn, None, len(history.states) - 1)
        world.balancer.forget()
        history.name = others.name
        with pytest.raises(WrongRows):
            check(world, history, drawn, None, len(history.states) - 1)
    finally:
        world.balancer.forget()


def _without_a_file(content: bytes) -> bytes:
    answer = json.loads(content)
    return json.dumps({**answer, "file-scan-tasks": answer["file-scan-tasks"][:-1]}).encode()


def _without_pages(content: bytes) -> bytes:
    return json.dumps({**json.loads(content), "plan-tasks": []}).encode()
