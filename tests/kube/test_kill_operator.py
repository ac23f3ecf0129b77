"""The operator dies at every write of a load, a merge and a reindex, and in `make soak-kill` of other work.

Nothing happens twice. Real API server, real etcd, real commits: only the kubelet is simulated. The kinds of work run
side by side.
`tests/unit/test_reconcile_crashes.py` has every write at every moment, in memory. Here each write has one moment, which
depends on the write and on the commit; `make soak-kill` has all of them. `make test` takes two of the kinds.
"""

from __future__ import annotations

import asyncio
import gc
import multiprocessing
import os
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.cluster.controlplane import ControlPlane
from tests.examples import ALL_CASES, SHARE, turn
from tests.kube.access import admin_access
from tests.kube.faults.driver import warm_up
from tests.kube.faults.lab import Lab, Plan
from tests.kube.faults.proxy import Moment
from tests.kube.faults.works import KeptChanges, KeptMerges, Loads, Maintains, Merges, Reindexes, Servers, Site

Work = Loads | Maintains | Merges | Reindexes | Servers
KINDS: dict[str, type[Work]] = {"load": Loads, "merge": Merges, "reindex": Reindexes}
if ALL_CASES:
    KINDS |= {"maintain": Maintains, "kept": KeptMerges, "replaced": KeptChanges}
    # Nothing makes pods of a Deployment where there are no controllers.
    KINDS |= {} if os.environ.get("SKIPSTONE_API") == "local" else {"server": Servers}
elif SHARE:
    del KINDS[list(KINDS)[turn(len(KINDS), __name__)]]
if only := os.environ.get("SKIPSTONE_SOAK_WORKS"):
    KINDS = {kind: KINDS[kind] for kind in only.split(",")}
#: How often each write of each kind has its moments.
ROUNDS = int(os.environ.get("SKIPSTONE_SOAK_ROUNDS", "1"))


@dataclass
class Outcome:
    """What happened to one kind of work."""

    writes: int = 0
    plans: int = 0
    fired: int = 0
    violations: list[str] = field(default_factory=list)
    endings: list[str] = field(default_factory=list)
    expected: list[tuple[int, str]] = field(default_factory=list)
    found: list[tuple[int, str]] = field(default_factory=list)


@pytest.fixture(scope="module")
def pool() -> Iterator[ProcessPoolExecutor]:
    """A process that does drivers' work: one of them does the little that there is, and starts Spark once."""
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(max_workers=1, mp_context=context) as opened:
        opened.submit(warm_up).result()
        yield opened


@pytest.fixture(scope="module")
def outcomes(
    control_plane: ControlPlane, pool: ProcessPoolExecutor, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, Outcome]:
    """All plans of all kinds, carried out."""
    base = tmp_path_factory.mktemp("lakes")
    done = asyncio.run(kill_everywhere(control_plane, pool, base))
    gc.collect()  # what was left open is told here, not in a later test
    return done


async def kill_everywhere(plane: ControlPlane, pool: ProcessPoolExecutor, base: Path) -> dict[str, Outcome]:
    """The kinds side by side."""
    done = await asyncio.gather(*(kill_during(plane, pool, base, kind) for kind in KINDS))
    return dict(zip(KINDS, done, strict=True))


async def kill_during(plane: ControlPlane, pool: ProcessPoolExecutor, base: Path, kind: str) -> Outcome:
    """One undisturbed work to count the writes, then one per write and moment."""
    namespace = f"kill-{kind}"
    folder = base / kind
    folder.mkdir()
    await asyncio.to_thread(plane.kubectl, "create", "namespace", namespace)
    site = Site(plane, namespace, folder, admin_access(plane))
    lab, outcome = Lab(plane, namespace, folder, pool), Outcome()
    work = KINDS[kind](site)
    await asyncio.to_thread(site.prepare)
    await asyncio.to_thread(work.prepare)
    await lab.start()
    try:
        await lab.until(lambda: work.ready() and lab.is_quiet(), "ready")
        outcome.writes = await carry_out(lab, work, Plan(0, Moment.BEFORE), 0)
        plans = choose_plans(outcome.writes, turn(len(Moment)))
        for number, plan in enumerate(plans, start=1):
            begin = time.monotonic()
            await carry_out(lab, work, plan, number)
            print(f"{kind} {number} of {len(plans)}: {plan}, {time.monotonic() - begin:.1f} s", flush=True)
            outcome.plans += 1
            outcome.fired += lab.proxy.fired.is_set()
        outcome.violations, outcome.endings = lab.kubelet.violations, lab.unexplained
        outcome.expected, outcome.found = sorted(site.expected.items()), site.rows()
    finally:
        await lab.stop()
    return outcome


def choose_plans(writes: int, turn_of: int) -> list[Plan]:
    """One moment of each write, or all of them in the soak target."""
    moments = list(Moment)
    shown = len(moments) if ALL_CASES else 1
    return [
        Plan(at, moments[(at + turn_of + step) % len(moments)])
        for _ in range(ROUNDS)
        for at in range(1, writes + 1)
        for step in range(shown)
    ]


async def carry_out(lab: Lab, work: Work, plan: Plan, number: int) -> int:
    """One plan."""
    return await lab.carry_out(plan, lambda: work.begin(number), lambda: work.ended(number))


@pytest.mark.timeout(3600 * ROUNDS)
def test_rows_are_there_exactly_once(outcomes: dict[str, Outcome]) -> None:
    chosen = f"turn {turn(len(Moment))} of {len(Moment)}" if not ALL_CASES else "all turns"
    for kind, outcome in outcomes.items():
        print(f"{kind}: {outcome.writes} writes, {outcome.plans} plans ({chosen}), operator killed in {outcome.fired}")
        assert outcome.plans == outcome.writes * (len(Moment) if ALL_CASES else 1) * ROUNDS > 0, kind
        assert outcome.found == outcome.expected, kind


def test_no_owner_ever_had_two_live_drivers(outcomes: dict[str, Outcome]) -> None:
    assert {kind: outcome.violations for kind, outcome in outcomes.items()} == {kind: [] for kind in KINDS}


def test_the_operator_never_ended_by_itself_but_for_a_late_lease(outcomes: dict[str, Outcome]) -> None:
    assert {kind: outcome.endings for kind, outcome in outcomes.items()} == {kind: [] for kind in KINDS}


def test_the_operator_was_killed_at_nearly_every_write(outcomes: dict[str, Outcome]) -> None:
    """Some work needs a write less than it needed undisturbed: what two passes saw, one may see."""
    fired = {kind: (outcome.fired, outcome.plans) for kind, outcome in outcomes.items()}
    assert sum(times for times, _ in fired.values()) >= sum(plans for _, plans in fired.values()) * 0.8, fired
    assert all(times >= plans * 0.5 for times, plans in fired.values()), fired
