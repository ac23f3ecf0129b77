"""What the documentation shows of each benchmark: the tables of docs/benchmarks.md and of the guides."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

from tests.bench.peers_published import PEER_TABLES
from tests.bench.peers_published import SCALE as PEERS_SCALE
from tests.bench.tables import (
    Cases,
    Column,
    Line,
    Row,
    Table,
    by_case,
    count,
    goal_of,
    mebibytes,
    milliseconds,
    ratio,
    rounded,
    seconds,
    unit,
    yes,
)

#: Scales of full runs: lines of other scales are not published. Benchmarks without a scale are published as they are.
SCALES: Mapping[str, tuple[object, ...]] = {
    "merge": (6,),
    "lookup": (3, 10),
    "joins": (3, 10),
    "tpch": (3, 10),
    "build": (3,),
    "compaction": (3,),
    "server": (1, 3),
    "upsert": (10_000_000,),
    "equality": ("4000000 v2", "4000000 v3"),
    "sizing": (1_000_000,),
    "hbase": (10_000_000, 100_000_000),
    "catchup": (40, 400),
    "thresholds": (3_600_000,),
    "peers": (PEERS_SCALE,),
}
OURS = Column("Skipstone", "ours_s", seconds)
ICEBERG = Column("Iceberg", "peers.iceberg", seconds)
DELTA = Column("Delta", "peers.delta", seconds)
RATIO = Column("Ratio", "ratio", ratio)


def _titles(columns: Sequence[Column], first: str = "Case") -> tuple[str, ...]:
    return (first, *(column.title for column in columns))


def _table(name: str, call: str, cases: Cases, first: str = "Case") -> Table:
    """A table with a row for each case. ``name`` begins with that of its benchmark."""
    return Table(name, name.partition("-")[0], call, _titles(cases.columns, first), cases)


MERGES = Cases(
    {
        "uniform keys": "uniform keys (one row in a thousand of every file)",
        "string key with a key index": "string key with a key index (20 rows of the last files)",
        "not matched by source, conditional": "not matched by source, conditional (an extract of the last files)",
        "delete only": "delete only (20 rows of every tenth file)",
        "composite key": "composite key, 20 rows of every tenth file updated",
        "sparse keys": "sparse keys, as composite",
        "recent keys": "recent keys (240,000 changes in the last files)",
        "insert only": "insert only (120,000 rows)",
        "bloom filters of random UUIDs": "random UUIDs, bloom filters and no index (every key is between the bounds of "
        "all files)",
    },
    (
        Column("Files touched", "files.touched", count),
        OURS,
        Column("Skipstone, merge-on-read", "ours_mor_s", seconds),
        Column("Delta", "peers.delta_cow", seconds),
        Column("Delta, deletion vectors", "peers.delta_dv", seconds),
        Column("Iceberg", "peers.iceberg_cow", seconds),
        Column("Iceberg, merge-on-read", "peers.iceberg_mor", seconds),
        Column("Limit", "limit_ratio", ratio),
    ),
    scale=6,
)

#: Words for the condition of a lookup, by the name of its case.
CONDITIONS = {
    "point, none synced": "point, no segment synced",
    "point, half synced": "point, 20 of 40 segments synced",
    "point, all but 3 synced": "point, 37 of 40 segments synced",
    "point, all synced": "point, all synced",
    "and of two indexes": "two columns, each with an index",
    "in of 100, uniform": "`in` of 100 keys from everywhere",
    "in of 1,000, uniform": "`in` of 1,000 keys from everywhere",
    "range of 0.1 %, uniform": "a range of 0.1 % of the keys, which are everywhere",
    "in of 100, load order": "`in` of 100 keys in the order of the files",
    "range of 0.1 %, load order": "a range of 0.1 % of the keys, which are in one file or two",
    "keys and included columns, point": "point, keys and included columns",
    "keys and included columns, range of 0.1%": "a range of 0.1 %, keys and included columns",
    "keys and included columns, range of 3.0%": "a range of 3 %, keys and included columns",
}
JOINS = {
    f"{join}, {state}": f"{join}, {words}"
    for state, words in {
        "none synced": "no segment synced",
        "all but 3 synced": "37 of 40 segments synced",
        "all synced": "all segments synced",
    }.items()
    for join in ("a brand in a container", "orders of a customer")
}
LARGE_JOINS = {
    "all orders, all but 3 synced: aggregate": "37 of 40",
    "all orders, all synced: aggregate": "all",
}
READ = (Column("Files read", "files_hit", count), OURS, ICEBERG, DELTA)
SHUFFLES = Column("Shuffles of the large tables", "shuffles", count)


def shaped(cases: Mapping[str, str]) -> dict[str, str]:
    """Each case as an aggregate and as rows."""
    return {f"{case}: {shape}": f"{label}: {shape}" for case, label in cases.items() for shape in ("aggregate", "rows")}


TPCH = (
    OURS,
    Column("Iceberg", "iceberg_s", seconds),
    RATIO,
    Column("Reads indexes", "uses_index", yes),
)
QUERIES = {f"Q{number}": f"Q{number}" for number in range(1, 23)}


def _upserts(lines: Sequence[Line]) -> Iterator[Row]:
    for keys in sorted({line["keys"] for line in lines}):
        found = {line["mode"]: line for line in lines if line["keys"] == keys}
        for mode, line in found.items():
            engine = "Skipstone, merge-on-read" if mode == "merge-on-read" else "Skipstone"
            yield Row((f"{keys:,}", engine, *_cost(line["skipstone"])), (line,))
        line = next(iter(found.values()))
        ended = ", ended" if line["pyiceberg"]["cut"] else ""
        yield Row((f"{keys:,}", f"PyIceberg{ended}", *_cost(line["pyiceberg"])), (line,))


def _cost(cost: Line) -> tuple[str, str, str]:
    return seconds(cost["seconds"]), seconds(cost["cpu_seconds"]), unit("GiB", 1 / 1024)(cost["peak_mib"])


POINTS = Cases(
    shaped({"point, none synced": "point, no segment synced", "point, synced": "point, all synced"}),
    (
        Column("Server", "served_s", seconds),
        Column("Iceberg", "iceberg_s", seconds),
        Column("`skipstone.sql`", "skipstone_s", seconds),
        Column("Floor", "floor_s", seconds),
        RATIO,
        Column("Goal", "", lambda line: goal_of("server", line, "ratio")),
    ),
    scale=3,
)


def _server(lines: Sequence[Line]) -> Iterator[Row]:
    """What is measured of the server alone, each line in its own words."""
    for line in lines:
        case, _, rest = line["case"].partition(": ")
        goal = goal_of("server", line)
        if "ms" in line:
            words = rest.replace("CPU of a plan", "processor time of a plan")
            yield Row((words, milliseconds(line["ms"]), f"{goal} ms"), (line,))
        elif "plans_a_second" in line:
            seen = f"{rounded(line['plans_a_second'])} plans a second, 99 of 100 within {seconds(line['p99_s'])}"
            goals = f"{goal_of('server', line, 'plans_a_second')} a second, {goal_of('server', line, 'p99_s')} s"
            yield Row((f"{rest} on the server's cores", seen, goals), (line,))
        elif "ms_dearer" in line:
            seen = f"{milliseconds(line['ms_dearer'])} longer"
            yield Row(("the first plan after a commit of one file", seen, f"{goal} ms"), (line,))
        elif case == "many files":
            words = f"{rest}, nothing ruled out: time of the server / of the client"
            yield Row((words, ratio(line["ratio"]), goal), (line,))
        elif case == "start":
            yield Row(("start until ready", seconds(line["seconds"]), f"{goal} s"), (line,))
        elif case == "memory":
            yield Row((f"memory of the server itself, {rest}", mebibytes(line["own_mib"]), f"{goal} MiB"), (line,))


SERVER_TPCH = Cases(
    {
        "tpch: geometric mean": "geometric mean of all",
        **{f"tpch: Q{number}": f"Q{number}" for number in range(1, 23)},
    },
    (
        Column("Server", "served_s", seconds),
        Column("Iceberg", "iceberg_s", seconds),
        RATIO,
        Column("Goal", "", lambda line: goal_of("server", line)),
    ),
    scale=1,
)
BUILDS = Cases(
    {
        "build on l_suppkey": "`l_suppkey`",
        "build on l_orderkey": "`l_orderkey`",
        "build on l_partkey, l_suppkey": "`l_partkey`, `l_suppkey`",
        "build on l_shipinstruct, l_shipdate": "`l_shipinstruct`, `l_shipdate`",
    },
    (OURS, Column("Spark", "peers.iceberg", seconds), Column("Part of Spark's time", "ratio", ratio)),
    scale=3,
)
SIZES = Cases(
    {
        "long, rows in its order": "long, rows in its order",
        "string with 6 values": "string with 6 values, rows in no order",
        "int with 1,000 values, rows in no order": "int with 1,000 values, rows in no order",
        "long, numbered without gaps, rows in no order": "long, numbered without gaps, rows in no order",
        "string with 6 values and long": "string with 6 values, and such a long",
        "string of 12 characters, rows in no order": "string of 12 hexadecimal characters",
        "long, any of 62 bits, rows in no order": "long of 62 random bits",
        "long of 62 bits, with an included decimal(9,2)": "the same, with an included decimal(9,2)",
        "the same, with an included string of 12 characters too": "the same, with an included string of 12 characters "
        "too",
        "UUID as a string of 36 characters": "UUID as a string of 36 characters",
    },
    (Column("Bytes a row", "index_bytes_per_row", lambda value: f"{value:.1f}"),),
    scale=1_000_000,
)


def _catchups(lines: Sequence[Line]) -> Iterator[Row]:
    for line in lines:
        if "median_s" in line:
            yield Row((count(line["scale"]), seconds(line["median_s"]), seconds(line.get("median_cpu_s"))), (line,))


DIGITS = re.compile(r"\d{4,}")


def _hbase(lines: Sequence[Line]) -> Iterator[Row]:
    for line in lines:
        what = line["case"].removesuffix(", seconds")
        form = unit("MB", 1e-6) if what == "bytes" else seconds
        label = "bytes, without HBase's own" if what == "bytes" else DIGITS.sub(lambda keys: count(int(keys[0])), what)
        values = (form(line["table"]), form(line["hbase"]), ratio(line["ratio"]))
        yield Row((label, count(line["scale"]), *values), (line,))


REQUESTS = {
    "load of one file": "load of one file",
    "merge touching 4 of 400 files": "merge touching 4 of 400 files",
    "merge touching 4 of 400 files, on read": "merge touching 4 of 400 files, merge-on-read",
    "reindex of one segment": "reindex of one segment (Iceberg writes the column of these files in its order)",
    "observe run": "observe run (Iceberg reads the table of files)",
    "point lookup, first of a session": "point lookup, the first of a session",
    "point lookup, next ones": "point lookup, the next ones",
}


def _traffic(traffic: Line) -> str:
    """Requests, and the bytes of their bodies in both directions."""
    return f"{traffic['requests']:,} requests, {(traffic['sent'] + traffic['received']) / 1024**2:,.1f} MiB"


COMPACTIONS = Cases(
    {
        "bin-pack": "bin-pack",
        "sorted by l_partkey": "sorted by one column",
        "bin-pack with two indexes": "bin-pack, with two indexes",
        "sorted by l_partkey with two indexes": "sorted by one column, with two indexes",
    },
    (OURS, ICEBERG, RATIO, Column("Ratio of processor seconds", "cpu_ratio", ratio)),
    scale=3,
)
COMPACTED = Cases(
    {
        f"{read} after 200 merges on read, {moment} compaction": f"{words}, {moment}"
        for read, words in (("scan", "scan"), ("lookup", "point lookup"))
        for moment in ("before", "after")
    },
    (OURS, ICEBERG, RATIO),
    scale=3,
)
RESOLVERS = ("resolve", "compact", "rewrite_data_files")


def _equality(lines: Sequence[Line]) -> Iterator[Row]:
    for version in (2, 3):
        found = by_case(lines, f"4000000 v{version}")
        if found.keys() < set(RESOLVERS):
            continue
        own = tuple(found[name] for name in RESOLVERS)
        last = own[-1]
        times = [seconds(line["seconds"]) for line in own]
        yield Row((f"time, format version {version}", *times, ratio(last["ratio_seconds"])), own)
        sizes = [_size(line["written"]) for line in own]
        more = ratio(last["written"] / own[0]["written"])
        yield Row((f"bytes written, format version {version}", *sizes, more), own)


def _size(size: float) -> str:
    return unit("KiB", 1 / 1024)(size) if size < 1024**2 else unit("MiB", 1 / 1024**2)(size)


def _scans(lines: Sequence[Line]) -> Iterator[Row]:
    for version in (2, 3):
        found = by_case(lines, f"4000000 v{version}")
        if found.keys() >= set(RESOLVERS):
            own = tuple(found[name] for name in RESOLVERS)
            times = [own[0]["before"], *(line["scan"] for line in own)]
            yield Row((f"scan, format version {version}", *map(seconds, times)), own)


LENGTHS = {16: "16 bytes", 1024: "1 KiB", 16 * 1024: "16 KiB", 1024**2: "1 MiB"}
COMPARED = 16 * 1024


def _memory(lines: Sequence[Line]) -> Iterator[Row]:
    for kind in dict.fromkeys(line["kind"] for line in lines):
        found = {line["length"]: line for line in lines if line["kind"] == kind}
        ours = [_peak(found[length], "ours_mib") if length in found else "" for length in LENGTHS]
        peer = found.get(COMPARED, {})
        compared = (_peak(peer, "peer_mib"), ratio(peer.get("ratio")))
        yield Row((kind, *ours, *compared), tuple(found.values()))


def _peak(line: Line, measure: str) -> str:
    return "failed" if "error" in line else "" if line.get(measure) is None else f"{line[measure]:,.0f} MiB"


GROWTH = {
    "commit_cpu_ms": "a commit",
    "upkeep_cpu_ms": "maintenance, per commit",
    "plan_first_cpu_ms": "planning a lookup, new process",
    "plan_next_cpu_ms": "planning the next",
}
LIFE = "maintained"


def _growth(lines: Sequence[Line]) -> Iterator[Row]:
    """The longest life with maintenance, beside the first hundred of a table that began with its last."""
    ages = [line["commits"] for line in lines if line["case"] == f"{LIFE}, {line.get('commits')} commits"]
    found = by_case(lines)
    first = found.get(f"{LIFE}, 100 commits of a table begun today")
    if not ages or first is None:
        return
    last = found[f"{LIFE}, {max(ages)} commits"]
    for measure, words in GROWTH.items():
        line = found.get(f"{LIFE}, {measure}: last hundred of {max(ages)} / first of a table begun today", {})
        goal = goal_of("growth", line) if line else ""
        cells = (milliseconds(first[measure]), milliseconds(last[measure]), ratio(last[measure] / first[measure]), goal)
        yield Row((words, *cells), tuple(one for one in (first, last, line) if one))
    size = found[f"{LIFE}, size that grew most: last hundred of {max(ages)} / its own first"]
    yield Row((f"the size that grew most, `{size['size']}`", "", "", ratio(size["ratio"]), "4"), (size,))


CONTROL = {
    "launches": (
        "300 LoadJobs at a steady pace over 100 Tables",
        "300 launches a minute, p99 from create to pod below 5 s",
        "{launches_per_minute} a minute, p50 {p50_s} s, p99 {p99_s} s; {requests_per_launch} requests and "
        "{cpu_ms_per_launch} ms of CPU for each",
    ),
    "200 jobs of one Table": (
        "200 suspended LoadJobs on one Table",
        "all have a condition within 10 s",
        "{seconds} s",
    ),
    "invalid manifest": ("an invalid manifest beside them", "told within 2 s", "{seconds} s"),
    "at rest": (
        "2,000 objects at rest",
        "fewer than 10 requests a minute, less than 2 % of a core",
        "{requests_per_minute} a minute, {cpu_percent} %",
    ),
    "start": ("start with 5,000 objects", "below 30 s and 300 MiB", "{seconds} s, {peak_mib} MiB"),
}


def _control(lines: Sequence[Line]) -> Iterator[Row]:
    found = by_case(lines)
    for case, (words, goal, seen) in CONTROL.items():
        if case in found:
            yield Row((words, goal, seen.format(**found[case])), (found[case],))


def _passes(lines: Sequence[Line]) -> Iterator[Row]:
    found = by_case(lines)
    if {"pass, selected", "pass, listed"} <= found.keys():
        ours, listed = found["pass, selected"], found["pass, listed"]
        cells = (
            milliseconds(ours["cpu_ms"]),
            milliseconds(listed["cpu_ms"]),
            count(ours["requests"]),
            _size(ours["kib"] * 1024),
            _size(listed["kib"] * 1024),
            mebibytes(ours["peak_mib"]),
        )
        yield Row(("a pass over a quiet Table, no job of its own", *cells), (ours, listed))


def _freshness(lines: Sequence[Line]) -> Iterator[Row]:
    for line in lines:
        number = line["case"].removeprefix("file ")
        cells = (seconds(round(line[name], 1)) for name in ("from_arrival_s", "from_minute_s"))
        yield Row((number, *cells, f"{goal_of('freshness', line)} s"), (line,))


def _thresholds(lines: Sequence[Line]) -> Iterator[Row]:
    """A row for each query and setting, its values in their order."""
    for line in sorted(lines, key=lambda line: line["setting"]):
        query, _, part = line["query"].partition(", ")
        words = f"{query}, {float(part.partition('%')[0]):g} % of the keys"
        cells = (f"`{value}`: {_run(run)}" for value, run in line["values"].items())
        yield Row((f"`{line['setting']}`", words, *cells), (line,))


def _run(run: Line) -> str:
    files = f", {run['files']} files" if run["files"] >= 0 else ""
    return f"{seconds(run['seconds'])}{files}, {run['by']}"


TABLES = (
    _table("merge", "make bench-merge", MERGES),
    Table(
        "upsert",
        "upsert",
        "make bench-upsert",
        ("Changes", "Engine", "Time", "Processor seconds", "Memory"),
        _upserts,
    ),
    _table("lookup-3", 'make bench-lookup ARGS="--scale 3"', Cases(shaped(CONDITIONS), READ, 3)),
    _table("lookup-10", "make bench-lookup", Cases(shaped(CONDITIONS), READ, 10)),
    _table("joins-3", 'make bench-joins ARGS="--scale 3"', Cases(shaped(JOINS), READ, 3)),
    _table("joins-10", "make bench-joins", Cases(shaped(JOINS), READ, 10)),
    _table(
        "joins-large-3",
        'make bench-joins ARGS="--scale 3 --large"',
        Cases(LARGE_JOINS, (SHUFFLES, OURS, ICEBERG, DELTA), 3),
        "Segments synced",
    ),
    _table("tpch-3", 'make bench-tpch ARGS="--scale 3"', Cases(QUERIES, TPCH, 3), "Query"),
    _table("tpch-10", "make bench-tpch", Cases(QUERIES, TPCH, 10), "Query"),
    _table("server", "make bench-server", POINTS),
    Table("server-alone", "server", "make bench-server", ("Case", "Seen", "Goal"), _server),
    _table("server-tpch", 'make bench-server ARGS="--only tpch --scale 1 --files 80"', SERVER_TPCH, "Query"),
    _table("build", 'make bench-build ARGS="--columns l_suppkey l_orderkey"', BUILDS, "Column"),
    Table("catchup", "catchup", "make bench-catchup", ("Segments", "Time", "Processor seconds"), _catchups),
    _table("sizing", "make bench-sizing", SIZES, "Columns"),
    Table("hbase", "hbase", "make bench-hbase", ("Case", "Rows", "In its table", "In HBase", "Ratio"), _hbase),
    _table(
        "requests",
        "make bench-requests",
        Cases(REQUESTS, (Column("Skipstone", "ours", _traffic), Column("Iceberg", "peers.iceberg", _traffic))),
    ),
    _table("compaction", 'make bench-compaction ARGS="--files 40 --target 16"', COMPACTIONS),
    _table("compaction-reads", 'make bench-compaction ARGS="--files 40 --target 16"', COMPACTED),
    Table(
        "equality",
        "equality",
        "make bench-equality-deletes",
        ("Case", "Resolving", "Compaction", "rewrite_data_files", "Ratio to rewrite_data_files"),
        _equality,
    ),
    Table(
        "equality-scans",
        "equality",
        "make bench-equality-deletes",
        ("Case", "Before", "Resolved", "Compacted", "rewrite_data_files"),
        _scans,
    ),
    Table(
        "memory",
        "memory",
        "make bench-memory",
        ("Case", *LENGTHS.values(), "PyIceberg, 16 KiB", "Ratio"),
        _memory,
    ),
    Table(
        "growth",
        "growth",
        "make bench-growth",
        ("Table with maintenance", "First 100 commits of a new table", "Last 100 commits, in turns", "Ratio", "Goal"),
        _growth,
    ),
    Table("operator", "operator", "make bench-operator", ("Case", "Goal", "Seen"), _control),
    Table(
        "operator-passes",
        "operator",
        "make bench-operator",
        (
            "Case",
            "CPU, Skipstone",
            "CPU, listed",
            "Requests, Skipstone",
            "Bytes, Skipstone",
            "Bytes, listed",
            "Peak memory, Skipstone",
        ),
        _passes,
    ),
    Table(
        "freshness",
        "freshness",
        "make bench-freshness",
        ("File", "From its arrival", "From the schedule's next minute", "Goal"),
        _freshness,
    ),
    Table(
        "thresholds",
        "thresholds",
        'make bench-thresholds ARGS="--repeats 3"',
        ("Setting", "Query", "A lower value", "The default", "A higher value"),
        _thresholds,
        page="guide/indexes.md",
    ),
    *PEER_TABLES,
)
