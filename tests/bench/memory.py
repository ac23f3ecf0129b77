"""Peak memory of each kind of run, by the length of texts that a small file repeats: `make bench-memory`.

A file holds 30 texts, each many times: some hundred KiB that are GiB in memory. Each run is a process of its own with
the settings of a default driver pod and, where cgroups may be made here, its limit, which ends a run that needs more.
What counts is by how much its peak is above that of the same run over 200 short rows, which starts Spark if the run
does. The peak of one process is its VmHWM. Those of the processes of a run with a JVM come at other times and have
pages in common: there it is what the kernel cannot take back of all of them together, if a cgroup tells.
PyIceberg does the same work where it can, without a limit.
Prints a table and writes build/bench/memory.jsonl: ``ratio`` = peer / ours, of what is above an empty run.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.bench.memory_pod import LIMIT, limited, pod_environment
from tests.bench.memory_runs import KINDS, OURS, PYICEBERG, Texts, prepare
from tests.bench.peers import is_wanted
from tests.bench.results import FOLDER, is_left, keep, read, show_goals, verdict

RESULTS = FOLDER / "memory.jsonl"
KIB, MIB = 1024, 1024 * 1024
#: A run over these takes as much as starting it does.
EMPTY = Texts(length=16, rows=200)
MOST_ROWS = 128 * 1024
#: Bytes of the texts for which the table compares.
_COMPARED = 16 * KIB
_writing = threading.Lock()
_QUIETLY: dict[str, Any] = {"capture_output": True, "text": True, "timeout": 1_800, "check": False}


@dataclass(frozen=True)
class Peak:
    """Bytes of memory, and seconds that the run took; ``size``: bytes of the file with texts. ``jvm``: whether the run
    started Spark. ``apart``: bytes of each process at its own time. ``bounded``: whether a limit was kept.
    """

    peak: int
    seconds: float
    size: int
    jvm: bool
    apart: int
    bounded: bool


def main() -> None:
    """Run all kinds."""
    options = _options()
    if options.table:
        print("\n".join(_table(read(RESULTS))))
        return
    kinds = [name for name in KINDS if is_wanted(name, options.only)]
    with ThreadPoolExecutor(options.jobs) as pool:
        ended = list(pool.map(lambda kind: _measure(kind, options), kinds))
    show_goals(RESULTS)
    if not all(ended):
        sys.exit("some runs did not end: see above")


def _measure(kind: str, options: argparse.Namespace) -> bool:
    """Whether all runs of a kind ended."""
    ended = True
    decoded = options.decoded * MIB
    lengths = [length for length in options.lengths if is_left(RESULTS, [_texts(kind, length, decoded)[0]])]
    for line in _lines(kind, lengths, decoded, peers=not options.no_peers) if lengths else ():
        with _writing:
            print(_shown(keep(RESULTS, line)), flush=True)
        ended = ended and "error" not in line
    return ended


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--lengths", type=int, nargs="*", default=[16, 1024, 16 * 1024, MIB], help="bytes of a text")
    parser.add_argument("--decoded", type=int, default=1024, help="MiB of all texts at most, as they are in memory")
    parser.add_argument("--jobs", type=int, default=1, help="kinds that run at a time: memory does not depend on it")
    parser.add_argument("--no-peers", action="store_true", help="run ours only")
    parser.add_argument(
        "--table", action="store_true", help="run nothing: print the results that are there for the docs"
    )
    parser.add_argument("--only", default="", help="kinds whose name holds one of these, separated by semicolons")
    return parser.parse_args()


def _lines(kind: str, lengths: Sequence[int], decoded: int, *, peers: bool) -> Iterator[dict[str, Any]]:
    whose = [OURS, *([PYICEBERG] if peers and KINDS[kind].peer is not None else [])]
    empty = {who: _took(kind, who, EMPTY).peak for who in whose}
    in_spark = _empty_in_spark(kind)
    for length in lengths:
        case, texts = _texts(kind, length, decoded)
        try:
            found = {who: _took(kind, who, texts) for who in whose}
        except (RuntimeError, subprocess.TimeoutExpired) as error:  # one that fails leaves the others their turn
            yield {"case": case, "kind": kind, "length": length, "error": str(error)}
            continue
        base = empty | ({OURS: in_spark} if in_spark and found[OURS].jvm else {})
        above = {who: max(one.peak - base[who], 0) for who, one in found.items()}
        ours, peer = found[OURS], found.get(PYICEBERG)
        yield {
            "case": case,
            "kind": kind,
            "length": length,
            "rows": texts.rows,
            "file_kib": round(ours.size / 1024, 1),
            "decoded_mib": texts.rows * length // MIB,
            "page_mib": min(KINDS[kind].page_rows, texts.rows) * length // MIB,
            "ours_mib": round(above[OURS] / MIB, 1),
            "empty_mib": round(base[OURS] / MIB, 1),
            "jvm": ours.jvm,
            "apart_mib": round(ours.apart / MIB, 1),
            "limit_mib": LIMIT // MIB if ours.bounded else None,
            "of_file": round(above[OURS] / ours.size, 1),
            "ours_s": ours.seconds,
            "peers": {} if peer is None else {PYICEBERG: peer.seconds},
            "peer_mib": None if peer is None else round(above[PYICEBERG] / MIB, 1),
            "ratio": None if peer is None else round(above[PYICEBERG] / max(above[OURS], MIB), 2),
        }


def _texts(kind: str, length: int, decoded: int) -> tuple[str, Texts]:
    """The name of a case, and its texts: of ``length`` bytes each, and of ``decoded`` bytes at most."""
    texts = Texts(length, min(MOST_ROWS, decoded // length))
    return f"{kind}, {texts.rows} texts of {length} bytes", texts


def _empty_in_spark(kind: str) -> int | None:
    """The peak of an empty run of the same work that starts Spark: for runs whose driver hands its work over."""
    twin = f"{kind}, in Spark"
    return _took(twin, OURS, EMPTY).peak if twin in KINDS else None


def _took(kind: str, who: str, texts: Texts) -> Peak:
    """One run in a process of its own."""
    root = Path(tempfile.mkdtemp(prefix="skipstone-memory-"))
    try:
        size = prepare(root, kind, texts)
        command = [sys.executable, "-m", "tests.bench.memory_runs", str(root), kind, who]
        environment = {**os.environ, **(pod_environment() if who == OURS else {})}
        with limited(LIMIT if who == OURS else None) as held:
            ended = subprocess.run(command, env=environment, preexec_fn=held.enter, **_QUIETLY)
        if ended.returncode:
            raise RuntimeError(f"{kind} of {who} with {texts} failed: {ended.stderr[-2000:]}")
        found = json.loads(ended.stdout.splitlines()[-1])
        together = held.peak if found["jvm"] and held.peak else found["peak"]
        return Peak(together, found["seconds"], size, found["jvm"], found["peak"], held.group is not None)
    finally:
        shutil.rmtree(root, ignore_errors=True)


def _shown(line: dict[str, Any]) -> str:
    if "error" in line:
        return f"{line['case']:<60} FAILED: {line['error']}"
    peer = "" if line["peer_mib"] is None else f", PyIceberg {line['peer_mib']:.0f} MiB: {line['ratio']:.1f}"
    page = f", with {line['page_mib']} MiB in one page" if line["page_mib"] else ""
    mark = "" if verdict(line) == "ok" else f" {verdict(line)}{page}"
    sizes = f"{line['file_kib']:.0f} KiB, {line['decoded_mib']} MiB decoded"
    return f"{line['case']:<60} {sizes}: ours {line['ours_mib']:.0f} MiB in {line['ours_s']:.1f} s{peer}{mark}"


def _table(lines: Sequence[dict[str, Any]]) -> Iterator[str]:
    """The results in Markdown: a row for each kind, a column for each length."""
    lengths = sorted({line["length"] for line in lines})
    names = [f"{length} bytes" if length < KIB else f"{length // KIB} KiB" for length in lengths]
    yield f"| Case | {' | '.join(names)} | PyIceberg, {_COMPARED // KIB} KiB | Ratio |"
    yield "|---" * (len(lengths) + 3) + "|"
    for kind in KINDS:
        found = {line["length"]: line for line in lines if line["kind"] == kind}
        ours = [_cell(found.get(length), "ours_mib") for length in lengths]
        peer = found.get(_COMPARED)
        ratio = f"{peer['ratio']:.1f}" if peer and peer.get("ratio") else ""
        if found:
            yield f"| {' | '.join([kind, *ours, _cell(peer, 'peer_mib'), ratio])} |"


def _cell(line: dict[str, Any] | None, name: str) -> str:
    if line is not None and "error" in line:
        return "failed"
    return "" if line is None or line.get(name) is None else f"{line[name]:,.0f} MiB"


if __name__ == "__main__":
    main()
