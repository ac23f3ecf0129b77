"""Whether anything grows with the number of commits: `make bench-growth`.

One table lives through small commits: loads, merges that copy and merges that mark, with two Inline indexes, and with
maintenance between the commits as the operator would ask for it. Another one lives through fewer without maintenance.
Shows what a commit and planning cost and how large everything is, after 100, 1,000 and 10,000 commits.
A life that was cut off goes on where it was, so its first hundred may be of another day, of other code and of a machine
with other work. The last hundred of each call therefore takes turns with the first hundred of a new table, commit by
commit, and the goal refers to that one. It is about processor seconds of the process, which does all by itself: they
depend less on what else a machine does. Prints a table and writes build/bench/growth.jsonl.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from skipstone.indexes.upkeep import expiry
from skipstone.tables.upkeep import archives
from skipstone_core.maintenance.policies import SnapshotPolicy

from tests.bench.growing import AGE_SECONDS, Cost, Life, changes
from tests.bench.results import FOLDER, keep, show_goals
from tests.spark.index_bed import Lake

ROOT = Path(__file__).parents[2]
CACHE = ROOT / ".cache" / "bench" / "growth"
RESULTS = FOLDER / "growth.jsonl"
SPAN = 100
PLANS = 5
#: What a table remembers of its jobs is never forgotten, and is in these files.
REMEMBERED = "own.txns"
#: Hundreds of which planning is measured too.
SHOWN = 1000
LIVES = {"maintained": True, "left alone": False}
#: The folder, in that of a life, of the first hundred of a new table under the same code and load. In it is one that is
#: named by the number of commits that the life has had by then.
TODAY = "begun-today"
COSTS = ("commit_cpu_ms", "commit_wall_ms", "plan_first_cpu_ms", "plan_next_cpu_ms")


def main() -> None:
    """Live as long as asked, then tell."""
    options = _options()
    if options.plan:
        print(json.dumps(_plan(options.plan)))
        return
    logging.disable(logging.WARNING)
    # an hour and two days of a schedule
    expiry.POLICY, archives.SPARED_MS = SnapshotPolicy(max_age_seconds=AGE_SECONDS), AGE_SECONDS * 1000
    lengths = {"maintained": options.commits, "left alone": options.without}
    for name, commits in lengths.items():
        if commits and options.fresh:
            shutil.rmtree(_folder(name), ignore_errors=True)
        if commits:
            _live(name, _folder(name), commits, stop=time.monotonic() + options.minutes * 60)
    lines = [line for name in lengths for line in _told(name)]
    for line in lines:
        print(json.dumps(keep(RESULTS, line)))
    show_goals(RESULTS)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--commits", type=int, default=10_000, help="of the life with maintenance")
    parser.add_argument("--without", type=int, default=1_000, help="of the life without")
    parser.add_argument(
        "--minutes", type=float, default=1e6, help="stop each life after so long; the next call goes on"
    )
    parser.add_argument("--fresh", action="store_true", help="begin again")
    parser.add_argument("--plan", type=Path, help=argparse.SUPPRESS)
    return parser.parse_args()


@dataclass
class _Hundred:
    """What the commits of a hundred cost, maintenance apart, and planning after some of them."""

    commits: list[Cost] = field(default_factory=list)
    upkeep: list[Cost] = field(default_factory=list)
    plans: list[dict[str, float]] = field(default_factory=list)

    def live(self, life: Life, number: int, *, is_planned: bool) -> None:
        """The commit ``number`` of ``life`` and the maintenance that is due after it; then planning."""
        for change in changes(number, number + 1):
            self.commits.append(life.commit(change))
        self.upkeep.append(life.maintain())
        if is_planned:
            self.plans.append(_planned(life.root))

    def told(self) -> dict[str, Any]:
        """Milliseconds."""
        found = {
            "commit_cpu_ms": _mean(one.cpu for one in self.commits),
            "commit_wall_ms": _mean(one.wall for one in self.commits),
            "upkeep_cpu_ms": sum(one.cpu for one in self.upkeep) * 1000 / max(len(self.commits), 1),
            "upkeep_runs": sum(one.wall > 0 for one in self.upkeep),
        }
        names = self.plans[0] if self.plans else ()
        return found | {name: statistics.median(one[name] for one in self.plans) for name in names}


def _mean(seconds: Iterator[float]) -> float:
    found = list(seconds)
    return sum(found) * 1000 / max(len(found), 1)


def _folder(name: str) -> Path:
    return CACHE / name.replace(" ", "-")


def _live(name: str, folder: Path, commits: int, *, stop: float) -> None:
    """Go on until ``commits``, in whole hundreds, or until it is ``stop`` by the monotonic clock and then one more."""
    os.environ["SKIPSTONE_CACHE_DIR"] = str(folder / "decodes")
    life = Life(folder / "lake", is_maintained=LIVES[name])
    while life.done < commits - SPAN and time.monotonic() < stop:
        _tell([(folder, life)], is_shown=life.done == 0 or (life.done + SPAN) % SHOWN == 0)
    if life.done >= commits:
        return
    shutil.rmtree(folder / TODAY, ignore_errors=True)
    new = folder / TODAY / str(life.done + SPAN)
    _tell([(folder, life), (new, Life(new / "lake", is_maintained=LIVES[name]))], is_shown=True)
    life.check(life.done)


def _tell(lives: Sequence[tuple[Path, Life]], *, is_shown: bool) -> None:
    """Let each of some lives, in its folder, have a hundred commits, one of each in turn, and write down their costs.

    ``is_shown``: measure planning, too.
    """
    begun = [(life, life.done, _Hundred()) for _, life in lives]
    for number in range(SPAN):
        for life, begin, hundred in begun:
            hundred.live(life, begin + number, is_planned=is_shown and (number + 1) % (SPAN // PLANS) == 0)
    for (folder, _), (life, begin, hundred) in zip(lives, begun, strict=True):
        line = {"commits": begin + SPAN, **hundred.told(), "sizes": life.sizes()}
        with (folder / "hundreds.jsonl").open("a") as lines:
            lines.write(json.dumps(line) + "\n")
        life.note(begin + SPAN)
        print(
            f"  {folder.relative_to(CACHE)}: {begin + SPAN} commits, {line['commit_cpu_ms']:.0f} ms of CPU each",
            flush=True,
        )


def _planned(root: Path) -> dict[str, float]:
    """Milliseconds of planning a lookup in a new process, in which nothing is decoded yet, and of the next ones."""
    with tempfile.TemporaryDirectory() as decodes:
        command = [sys.executable, "-m", "tests.bench.growth", "--plan", str(root)]
        environment = {**os.environ, "SKIPSTONE_CACHE_DIR": decodes}
        done = subprocess.run(command, cwd=ROOT, env=environment, check=True, stdout=subprocess.PIPE, text=True)
    found: dict[str, float] = json.loads(done.stdout)
    return found


def _plan(root: Path) -> dict[str, float]:
    lake, times = Lake(root), []
    for number in range(1 + PLANS):
        begin = time.process_time()
        lake.plan(f"name = 'n{number + 100}-1'")
        times.append((time.process_time() - begin) * 1000)
    return {"plan_first_cpu_ms": times[0], "plan_next_cpu_ms": statistics.median(times[1:])}


def _told(name: str) -> Iterator[dict[str, Any]]:
    """A line for each hundred that is shown, and one for each ratio of the last to a first."""
    hundreds = _hundreds(_folder(name))
    today = _hundreds(_folder(name) / TODAY / str(hundreds[-1]["commits"])) if hundreds else []
    for one in hundreds:
        if one["commits"] in (100, 1_000, 10_000) or one is hundreds[-1]:
            yield {"case": f"{name}, {one['commits']} commits", **one}
    for one in today:
        yield {"case": f"{name}, {one['commits']} commits of a table begun today", **one}
    if len(hundreds) > 1:
        first, last = hundreds[0], hundreds[-1]
        for one in today:
            yield from _ratios(name, last, one, "first of a table begun today")
        yield from _ratios(name, last, first, "its own first")
        yield _most_grown(name, first, last)


def _hundreds(folder: Path) -> list[dict[str, Any]]:
    path = folder / "hundreds.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def _ratios(name: str, last: dict[str, Any], first: dict[str, Any], named: str) -> Iterator[dict[str, Any]]:
    """Of what a commit and planning cost."""
    for what in (one for one in COSTS if one in last and one in first):
        ratio = round(last[what] / first[what], 3)
        yield {"case": f"{name}, {what}: last hundred of {last['commits']} / {named}", "ratio": ratio}


def _most_grown(name: str, first: dict[str, Any], last: dict[str, Any]) -> dict[str, Any]:
    """The size that grew most between two hundreds."""
    grown = {
        what: last["sizes"][what] / max(size, 1)
        for what, size in first["sizes"].items()
        if not what.startswith(REMEMBERED) and what in last["sizes"]
    }
    what = max(grown, key=lambda one: grown[one])
    case = f"{name}, size that grew most: last hundred of {last['commits']} / its own first"
    return {"case": case, "size": what, "ratio": round(grown[what], 3)}


if __name__ == "__main__":
    main()
