"""Skipstone beside engines that have indexes or clustered tables: `make bench-peers`.

Each peer runs in an environment of its own and gets the same rows. A run takes one peer and Skipstone in turn, in warm
processes: upserts, then lookups by the key and by a second column while the indexes are complete, after the upserts,
and after the engine's services have run. Every answer is compared with DuckDB's. Prints a line for each case and
writes build/bench/peers.jsonl: ratio = seconds of the peer / seconds of Skipstone, medians of the repetitions; for
bytes, those of the peer / those of Skipstone.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from collections import defaultdict
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.bench import results
from tests.bench.lineitem import say
from tests.bench.peers_published import NOTHING, SCALE
from tests.bench.peers_rows import BEHIND, CAUGHT_UP, SYNCED, WARM, Expected, Rows
from tests.bench.peers_setup import PEERS, SKIPSTONE, Answer, Engine, Failed, Listing, Mode, Program, copy_state

RESULTS = results.FOLDER / "peers.jsonl"


@dataclass
class Measures:
    """What one mode of an engine took. ``seconds``, ``cpu`` and ``bytes`` by case."""

    seconds: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    cpu: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    bytes: dict[str, list[int]] = field(default_factory=lambda: defaultdict(list))

    def add(self, case: str, answer: Answer) -> None:
        """Keep what a call took."""
        self.seconds[case].append(answer.seconds)
        self.cpu[case].append(answer.cpu)


@dataclass
class Place:
    """An engine with its folder, its running program, and what was measured."""

    engine: Engine
    folder: Path
    modes: tuple[Mode, ...]
    measures: dict[str, Measures]
    program: Program | None = None

    @property
    def work(self) -> Path:
        """The tables as they are now."""
        return self.folder / "work"

    @property
    def base(self) -> Path:
        """The first state of the tables."""
        return self.folder / "base"

    def call(self, do: str, **arguments: Any) -> Answer:
        """Call the program."""
        assert self.program is not None
        return self.program.call(do, **arguments)


def main() -> None:
    """Run all cases with each peer."""
    options = _options()
    rows = Rows(options.scale, options.files, options.repeats)
    rows.make()
    failed = []
    for engine in PEERS:
        if options.only and engine.name not in options.only:
            continue
        try:
            lines = _compare(rows, engine, prepare_only=options.prepare)
        except Failed as error:
            failed.append(engine.name)
            print(error, file=sys.stderr, flush=True)
            continue
        for line in lines:
            kept = results.keep(RESULTS, line)
            print(_shown(kept), flush=True)
    is_reached = options.prepare or results.show_goals(RESULTS)
    if failed:
        sys.exit(f"these peers failed: {', '.join(failed)}")
    sys.exit(0 if is_reached else results.EXIT_MISSED)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--scale", type=float, default=SCALE)
    parser.add_argument("--files", type=int, default=16)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--only", nargs="+", choices=[engine.name for engine in PEERS], help="peers; all if not given")
    parser.add_argument("--prepare", action="store_true", help="only make environments, rows and tables")
    return parser.parse_args()


def _compare(rows: Rows, engine: Engine, *, prepare_only: bool) -> list[dict[str, Any]]:
    """Measure one peer and Skipstone in turn; lines of results."""
    places = [
        Place(one, rows.root / one.name, one.modes, {mode.name: Measures() for mode in one.modes})
        for one in (SKIPSTONE, engine)
    ]
    for place in places:
        _prepare(place, rows)
    if prepare_only:
        return []
    with ExitStack() as stack:
        for place in places:
            copy_state(place.base, place.work)
            place.program = Program(place.engine, place.work)
            stack.callback(place.program.close)
        _measure(places, rows)
    ours, theirs = places
    return [line for mode in theirs.modes for line in _lines(ours, theirs, mode, rows)]


def _prepare(place: Place, rows: Rows) -> None:
    """Load and index the tables of an engine, unless they are there; what that took is kept beside them."""
    built = place.folder / "built.json"
    names = [mode.name for mode in place.modes]
    if not built.exists() or list(json.loads(built.read_text())) != names:
        copy_state(Path("/nonexistent"), place.work)
        place.program = Program(place.engine, place.work)
        try:
            taken = {name: _build(place, name, rows) for name in names}
        finally:
            place.program.close()
        copy_state(place.work, place.base)
        built.write_text(json.dumps(taken))
    for name, taken in json.loads(built.read_text()).items():
        for column, seconds in taken.items():
            place.measures[name].seconds[f"index: {column}"].append(seconds)


def _build(place: Place, mode: str, rows: Rows) -> dict[str, float]:
    say(f"{mode}: rows and indexes")
    place.call("load", mode=mode, files=[str(path) for path in rows.parts])
    return {
        name: place.call("index", mode=mode, column=column).seconds
        for name, column in (("the key", "l_uuid"), ("a second column", "l_partkey"))
    }


def _measure(places: Sequence[Place], rows: Rows) -> None:
    """All steps, each by all modes of both engines before the next one."""
    for step, case, _ in rows.steps():
        if case == WARM:
            _upsert(places, rows, step, "")
    _catch_up(places, "")
    _ask(places, rows, SYNCED)
    for step, case, _ in rows.steps():
        if case != WARM:
            _upsert(places, rows, step, f"upsert: {case}")
    _ask(places, rows, BEHIND)
    _catch_up(places, "services: after all upserts")
    _ask(places, rows, CAUGHT_UP)
    for place, mode in _all(places):
        listing = Listing.of(place.work)
        share = [path for path in listing.files if _is_of(path, mode, place.engine)]
        some = Listing({path: listing.files[path] for path in share})
        indexes = some.bytes_of(place.engine.indexes)
        place.measures[mode.name].bytes["bytes: rows"].append(some.bytes() - indexes)
        place.measures[mode.name].bytes["bytes: indexes"].append(indexes)


def _all(places: Sequence[Place]) -> Iterable[tuple[Place, Mode]]:
    return [(place, mode) for place in places for mode in place.modes]


def _is_of(path: str, mode: Mode, engine: Engine) -> bool:
    """Whether a file belongs to the table of a mode: an engine with one mode has one table."""
    return len(engine.modes) == 1 or f"/{mode.name}" in f"/{path}"


def _upsert(places: Sequence[Place], rows: Rows, step: str, case: str) -> None:
    say(f"upsert: {step}")
    for place, mode in _all(places):
        before = Listing.of(place.work)
        answer = place.call("upsert", mode=mode.name, changes=str(rows.changes(step)))
        if case:
            measures = place.measures[mode.name]
            measures.add(case, answer)
            measures.bytes[case].append(Listing.of(place.work).bytes_since(before))


def _catch_up(places: Sequence[Place], case: str) -> None:
    for place, mode in _all(places):
        before = Listing.of(place.work)
        answer = place.call("catch_up", mode=mode.name)
        if case:
            place.measures[mode.name].add(case, answer)
            place.measures[mode.name].bytes[case].append(Listing.of(place.work).bytes_since(before))


def _ask(places: Sequence[Place], rows: Rows, state: str) -> None:
    """All queries of a state, after a check of all rows. The first turn warms up."""
    say(f"lookups, {state}")
    for place, mode in _all(places):
        _check(place.call("checks", mode=mode.name), rows.checks(state), f"{mode.name}, all rows {state}")
    seen: set[str] = set()
    for query in rows.queries(state):
        for place, mode in _all(places):
            asked = {"column": query.column, "values": query.values, "shape": query.shape}
            answer = place.call("lookup", mode=mode.name, **asked)
            _check(answer, query.expected, f"{mode.name}, {query.case} {state}")
            if query.case in seen:
                place.measures[mode.name].add(f"lookup, {state}: {query.case}", answer)
        seen.add(query.case)


def _check(answer: Answer, expected: Expected, name: str) -> None:
    """Raise Failed for an answer that is not DuckDB's."""
    if answer.reply["digest"] != expected.digest:
        found = f"{answer.reply['rows']} rows such as {answer.reply['first']}"
        raise Failed(f"{name}: the answer is {found}, and must be {expected.rows} rows such as {expected.first}")


def _lines(ours: Place, theirs: Place, mode: Mode, rows: Rows) -> Iterable[dict[str, Any]]:
    """Results of one mode of a peer beside the mode of Skipstone that it is like."""
    (like,) = (one for one in ours.modes if one.like == mode.like)
    mine, other = ours.measures[like.name], theirs.measures[mode.name]
    for case in [*other.seconds, *(case for case in other.bytes if case not in other.seconds)]:
        line: dict[str, Any] = {
            "case": f"{case}, {mode.name}",
            "scale": rows.scale,
            "engine": mode.name,
            "against": like.name,
            "ours": _values(mine, case),
            "peer": _values(other, case),
            "repeats": max(len(other.seconds.get(case, ())), 1),
        }
        for name, measure in (("ratio", "seconds"), ("ratio_cpu", "cpu_seconds"), ("ratio_bytes", "bytes")):
            if all(line[side].get(measure, 0) > NOTHING for side in ("ours", "peer")):
                line[name] = line["peer"][measure] / line["ours"][measure]
        yield line


def _values(measures: Measures, case: str) -> dict[str, float]:
    """Medians of a case."""
    found: dict[str, dict[str, list[Any]]] = {
        "seconds": measures.seconds,
        "cpu_seconds": measures.cpu,
        "bytes": measures.bytes,
    }
    return {name: statistics.median(values[case]) for name, values in found.items() if values.get(case)}


def _shown(line: dict[str, Any]) -> str:
    """A line for people: ours, then the peer's."""
    sides = []
    for side in (line["ours"], line["peer"]):
        texts = [f"{side['seconds']:.3f} s"] if "seconds" in side else []
        texts += [f"{side['bytes'] / 1e6:.2f} MB"] if "bytes" in side else []
        sides.append(f"{' '.join(texts):>22}")
    ratio = line.get("ratio", line.get("ratio_bytes"))
    return f"{line['case']:<75} {' '.join(sides)} {ratio or 0:8.2f} {results.verdict(line)}"


if __name__ == "__main__":
    main()
