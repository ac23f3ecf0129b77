"""Writes the pictures of the documentation into docs/images; with --check it only compares.

Usage: scripts/diagrams.py [--check]. Numbers of charts are read from docs/benchmarks.md, from nowhere else.
"""

from __future__ import annotations

import sys
from pathlib import Path

from drawing import Area, Way, arrow, box, picture, text
from measured import lookups, merges
from rooms import rooms

ROOT = Path(__file__).resolve().parents[1]
IMAGES = ROOT / "docs" / "images"
BENCHMARKS = ROOT / "docs" / "benchmarks.md"


def overview() -> str:
    """What a user applies, what the operator does with it, and who reads the tables."""
    parts = [
        text(105, 24, "You apply", "head"),
        *(
            box(Area(20, 36 + 38 * number, 170, 30), [kind], "box")
            for number, kind in enumerate(
                ("Warehouse", "Table", "SecondaryIndex", "LoadJob", "MergeJob", "MergeSchedule")
            )
        ),
        arrow(Way(194, 146, 246, 146)),
        box(Area(250, 106, 150, 80), ["Operator", "decides, starts pods,", "writes status"], "main"),
        arrow(Way(404, 146, 466, 146), "a pod"),
        box(Area(470, 106, 150, 80), ["Run", "Spark or plain Arrow;", "commits once"], "main"),
        arrow(Way(624, 130, 686, 90)),
        arrow(Way(624, 162, 686, 202)),
        box(Area(690, 50, 150, 72), ["Iceberg table", "ordinary: every engine", "reads and writes it"], "good"),
        box(Area(690, 170, 150, 72), ["Index tables", "Iceberg, too; may lag,", "segment by segment"], "good"),
        text(325, 212, "kubectl get shows", "small"),
        text(325, 228, "SYNCED 10/12, PRUNED 10/12", "small code"),
        box(Area(470, 268, 150, 48), ["Spark session", "skipstone.enable(spark)"], "box"),
        arrow(Way(624, 284, 700, 246)),
        text(520, 258, "asks which files hold the keys", "small"),
        '<path class="line" d="M 624 302 C 860 340, 870 200, 844 92" marker-end="url(#tip)"/>',
        text(650, 328, "reads only those files", "small left"),
    ]
    return picture(860, 340, "Resources, operator, runs, tables and indexes", parts)


def segments() -> str:
    """An index that covers some segments of a table, and how a query reads each kind."""
    parts = [text(20, 30, "Table: a segment is the files that one snapshot added", "head left")]
    for number in range(6):
        x, missing = 20 + 138 * number, number >= 4
        parts.append(box(Area(x, 44, 126, 92), (), "bad" if missing else "good"))
        parts.append(text(x + 63, 62, f"segment {number + 7}", "head"))
        parts.append(text(x + 63, 128, "missing" if missing else "covered", "small"))
        parts += [box(Area(x + 12 + 36 * file, 72, 30, 38), (), "box") for file in range(3)]
    parts += [
        box(Area(20, 178, 540, 40), ["Index: for each row its file and row group, for the segments 7 to 10"], "main"),
        *(arrow(Way(83 + 138 * number, 174, 83 + 138 * number, 140)) for number in range(4)),
        text(572, 203, "SYNCED 4/6, MISSING 11,12", "code left"),
        text(20, 256, "A query for a few keys", "head left"),
        box(Area(20, 268, 400, 58), ["covered segments", "ask the index: open only the files that hold a key"], "good"),
        box(Area(440, 268, 400, 58), ["missing segments", "min/max of each file, as every Iceberg reader does"], "bad"),
        text(430, 352, "The union is the answer of a full scan. An index that lags costs time, never rows.", "small"),
    ]
    return picture(860, 366, "Segments of a table, covered and missing ones", parts)


FUNNEL = (
    ("all live files of the snapshot", "box"),
    ("Partitions: no source key belongs into the file's partition", "main"),
    ("TargetWhere: the file's bounds cannot satisfy targetWhere", "main"),
    ("KeyRanges: no source key lies within the file's bounds", "main"),
    ("Bloom: the file's filters hold no source key", "main"),
    ("KeyIndex: an index knows that the file holds no key", "main"),
    ("ExactJoin: no row of the file has a source key", "main"),
    ("touched: only these files are rewritten or marked", "good"),
)


def funnel() -> str:
    """The stages of a merge: each drops files, none changes the result."""
    parts = [text(430, 26, "Each stage drops files in which no row can match, and runs only if it pays", "small")]
    for number, (words, kind) in enumerate(FUNNEL):
        narrowed = 32 * number
        y = 40 + 46 * number
        parts.append(box(Area(20 + narrowed, y, 820 - 2 * narrowed, 32), [words], kind))
        if number:
            parts.append(arrow(Way(430, y - 14, 430, y - 2)))
    parts.append(text(430, 420, "status.funnel tells files in and out of each stage, or why it was left out", "small"))
    return picture(860, 434, "The stages that narrow down the files of a merge", parts)


COMMIT = (
    ("operator", "driver", "intent in the status, ConfigMap, then the pod"),
    ("driver", "table", "transaction id there already? then only report"),
    ("driver", "table", "pin one snapshot, write files that nobody sees yet"),
    ("driver", "table", "load again, look for the id, check what others did"),
    ("driver", "table", "one swap of metadata: rows and transaction id"),
    ("driver", "table", "then, in other commits, enter Inline indexes"),
    ("driver", "operator", "termination message: Committed, with exit code 0"),
    ("operator", "driver", "none of that? unknown: the next attempt looks"),
)


def commit() -> str:
    """Who says what to whom until a job is Complete."""
    at = {"operator": 110, "driver": 430, "table": 750}
    parts = [
        box(Area(x - 80, 16, 160, 34), [name.capitalize()], "good" if name == "table" else "main")
        for name, x in at.items()
    ]
    bottom = 82 + 44 * len(COMMIT)
    parts += [f'<line class="axis" x1="{x}" y1="50" x2="{x}" y2="{bottom}"/>' for x in at.values()]
    for number, (begin, end, words) in enumerate(COMMIT):
        y = 92 + 44 * number
        if number == 4:
            parts.append(box(Area(434, y - 24, 400, 34), (), "good"))
        parts.append(arrow(Way(at[begin], y, at[end], y)))
        middle = 430 if "operator" in (begin, end) else 634
        parts.append(text(at["driver"] + 12 if middle == 634 else 122, y - 7, f"{number + 1}. {words}", "small left"))
    parts.append(
        text(430, bottom + 24, "A driver may die between any two lines: rows are in the table once, or never.", "head")
    )
    return picture(860, bottom + 42, "Operator, driver and table until a job is Complete", parts)


def pictures() -> dict[str, str]:
    """Each file's content by its name."""
    page = BENCHMARKS.read_text()
    return {
        "overview.svg": overview(),
        "rooms.svg": rooms(),
        "segments.svg": segments(),
        "funnel.svg": funnel(),
        "commit.svg": commit(),
        "merges.svg": merges(page),
        "measured.svg": lookups(page),
    }


def main(argv: list[str]) -> int:
    """Write the pictures, or compare them when --check is given."""
    made = pictures()
    if "--check" in argv:
        differing = [name for name, content in made.items() if _read(IMAGES / name) != content]
        if differing:
            print(f"docs/images/{differing[0]} differs from what makes it: run `make generate`", file=sys.stderr)
        return 1 if differing else 0
    for name, content in made.items():
        (IMAGES / name).write_text(content)
    return 0


def _read(path: Path) -> str:
    return path.read_text() if path.exists() else ""


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
