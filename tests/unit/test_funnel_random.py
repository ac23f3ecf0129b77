"""No stage of the funnel loses a match: random tables, partition specs, index states, conditions and sources.

Each case merges without pruning, then runs the funnel with every subset of its stages: each row that matched must be
in a candidate file, with its source row among those that the file is compared with; and merging only the candidates
of one subset gives what merging everything gave.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import chain, combinations
from pathlib import Path
from random import Random
from typing import Any
from unittest import mock

import numpy as np
import pyarrow as pa
import pytest
from pyiceberg.transforms import (
    BucketTransform,
    DayTransform,
    HourTransform,
    IdentityTransform,
    MonthTransform,
    Transform,
    TruncateTransform,
    VoidTransform,
    YearTransform,
)
from skipstone.files.reader import describe_files
from skipstone.files.writer import write_spec
from skipstone.kernels.changes import ChangeSlice, SortRule, write_slice
from skipstone.kernels.merging import FileResult, FileWork, MergeWork, merge_files
from skipstone.pruning.funnel import Candidates
from skipstone.runs.merging.prune import PruneSite, prune_files
from skipstone.runs.merging.source import Changes, target_schema
from skipstone.tables.filesets import FileSet, read_file_set
from skipstone_core.contract.requests import MergeAction, MergeClause, MergeKey, MergeTask, SourceFormat, SourceSpec
from skipstone_core.funnel import FunnelStage, PruneStage
from skipstone_core.indexing import use as index_use
from skipstone_core.keys import key_type
from skipstone_core.merging.merges import MergeColumn, MergePlan, plan_merge

from tests.examples import cases
from tests.unit.bloom_beds import eager_filters
from tests.unit.query_lake import RandomLake, random_lake
from tests.unit.query_values import KINDS, Conditions, random_values

LAKES = cases(6, 12)
MERGES_PER_LAKE = cases(3, 24)
PARTS = cases(1, 2)
SUBSETS = tuple(chain.from_iterable(combinations(PruneStage, size) for size in range(len(PruneStage) + 1)))
TRANSFORMS: tuple[Transform[Any, Any], ...] = (
    IdentityTransform(),
    BucketTransform(2),
    BucketTransform(7),
    TruncateTransform(1),
    TruncateTransform(10),
    YearTransform(),
    MonthTransform(),
    DayTransform(),
    HourTransform(),
    VoidTransform(),
)


@pytest.mark.timeout(1200)
@pytest.mark.parametrize("part", range(PARTS))
def test_no_subset_of_stages_loses_a_match(tmp_path: Path, part: int) -> None:
    seen: Counter[str] = Counter()
    for seed in range(part, LAKES, PARTS):
        made = partitioned_lake(tmp_path / str(seed), seed)
        for number in range(MERGES_PER_LAKE):
            merge = random_merge(made, Random(seed * 1000 + number), tmp_path / f"{seed}-{number}")
            seen += check_merge(merge, Random(number), f"lake {seed} {made.log}, merge {number}: {merge.plan}")
    assert set(PruneStage) <= {name for name, count in seen.items() if count}, seen


def partitioned_lake(root: Path, seed: int) -> RandomLake:
    """A lake whose partition spec changed while it grew."""
    root.mkdir()
    made, random = random_lake(root, seed), Random(seed)
    made.random = random
    for _ in range(random.randint(1, 3)):
        evolve_spec(made, random)
        with suppress(ZeroDivisionError, ValueError):  # PyIceberg appends no NaN partition, no column twice in a spec
            made.step("add_rows")
        if made.indexes and random.random() < 0.3:
            made.step("sync_index")
    return made


def evolve_spec(made: RandomLake, random: Random) -> None:
    """Add a partition field or two, drop one now and then."""
    table = made.table
    with table.update_spec() as update:
        for field in table.spec().fields:
            if random.random() < 0.3:
                update.remove_field(field.name)
    for name in random.sample(sorted(made.kinds), random.randint(1, 2)):
        table = made.table
        source = table.schema().find_field(name)
        fitting = [one for one in TRANSFORMS if one.can_transform(source.field_type)]
        transform = random.choice(fitting)
        taken = {(field.source_id, str(field.transform)) for field in table.spec().fields}
        if isinstance(transform, VoidTransform) or (source.field_id, str(transform)) in taken:
            continue
        try:
            with table.update_spec() as update:
                update.add_field(name, transform, f"p{len(table.specs())}_{random.randrange(10**6)}")
        except ValueError:
            continue  # two fields of one time transform family
        made.log.append(f"partition by {transform} of {name}")


@dataclass(frozen=True)
class Merge:
    """One merge, its source on disk."""

    made: RandomLake
    files: FileSet
    changes: Changes

    @property
    def plan(self) -> MergePlan:
        return self.changes.plan


def random_merge(made: RandomLake, random: Random, folder: Path) -> Merge:
    """Keys of one to three columns, mostly of rows that are there, with or without a condition on target rows."""
    folder.mkdir()
    files = read_file_set(made.table)
    names = key_names(made, random)
    where = Conditions(random, {f"target.{name}": kind for name, kind in made.columns.items()}).condition(1)
    task = MergeTask(
        source=SourceSpec(format=SourceFormat.PARQUET, paths=("x",)),
        keys=tuple(MergeKey(target=name, source=f"s_{name}") for name in names),
        when_matched=(MergeClause(action=MergeAction.UPDATE, values={"id": "seq"}),),
        sequence_by="seq",
        target_where=where if random.random() < 0.4 else None,
    )
    target = target_schema(files.schema)
    types = {column.name: column.type for column in target}
    source = [
        MergeColumn(name="seq", type="long"),
        *(MergeColumn(name=f"s_{name}", type=types[name]) for name in names),
    ]
    plan = plan_merge(task, target, source)
    kinds = {column.name: kind for column in source if (kind := key_type(column.type))}
    rows = source_rows(made, random, names)
    slices = write_slices(rows, SortRule(plan.keys, "seq", kinds), folder)
    return Merge(made, files, Changes(plan=plan, slices=slices, schema_id=files.schema.schema_id))


def key_names(made: RandomLake, random: Random) -> list[str]:
    """Up to three columns; often one that some spec partitions by."""
    names = random.sample(sorted(made.kinds), random.randint(1, min(3, len(made.kinds))))
    table = made.table
    sources = {field.source_id for spec in table.specs().values() for field in spec.fields}
    named = [field.name for field in table.schema().fields if field.field_id in sources]
    if named and random.random() < 0.6:
        names = list(dict.fromkeys([random.choice(named), *names]))[:3]
    return names


def source_rows(made: RandomLake, random: Random, names: list[str]) -> pa.Table:
    """Keys of live rows, and some that are made up."""
    known = random.sample(sorted(made.live), min(len(made.live), random.choice([0, 1, 3, 12])))
    keys = [{name: made.live[number].get(name) for name in names} for number in known]
    count = random.choice([0, 1, 4, 20])
    values = {name: random_values(random, KINDS[made.kinds[name]], count) for name in names}
    keys += [{name: values[name][number] for name in names} for number in range(count)]
    random.shuffle(keys)
    fields = [pa.field("seq", pa.int64()), *(pa.field(f"s_{name}", KINDS[made.kinds[name]].type) for name in names)]
    rows = [{"seq": number, **{f"s_{name}": value for name, value in key.items()}} for number, key in enumerate(keys)]
    return pa.Table.from_pylist(rows, schema=pa.schema(fields))


def write_slices(rows: pa.Table, rule: SortRule, folder: Path) -> tuple[ChangeSlice, ...]:
    """Slices by a hash of the key: all rows of a key are in one of them."""
    texts = [repr(tuple(row.values())[1:]).replace("-0.0", "0.0") for row in rows.to_pylist()]
    which = np.array([len(text) % 2 for text in texts], dtype=np.int64)
    slices: list[ChangeSlice] = []
    for number in range(2):
        part = rows.take(pa.array(np.flatnonzero(which == number)))
        one = write_slice(part, rule, str(folder / f"slice-{number}.parquet"))
        slices.append(replace(one, base=sum(other.rows for other in slices)))
    return tuple(slices)


def check_merge(merge: Merge, random: Random, about: str) -> Counter[str]:
    """Every subset of stages against the merge of everything; how often each stage dropped a file."""
    everything = Candidates(np.arange(len(merge.files), dtype=np.int64))
    expected = {one.file_id: one for one in merged(merge, everything) if one.touched}
    seen: Counter[str] = Counter()
    chosen = random.choice(SUBSETS)
    weights = random.choice([{}, {"SMALL_FILES": 0, "OPEN_BYTES": 64}])
    for subset in SUBSETS:
        with mock.patch.multiple(index_use, **weights) if weights else mock.MagicMock(), eager_filters():
            candidates, funnel = pruned(merge, subset)
        for matched in matched_outside(merge, candidates, expected):
            pytest.fail(f"{subset} loses {matched}: {about}")
        seen += Counter({stage.name: stage.files_in - stage.files_out for stage in funnel})
        if subset == chosen:
            found = {one.file_id: one for one in merged(merge, candidates) if one.touched}
            assert found == expected, (subset, about)
    return seen


def pruned(merge: Merge, subset: tuple[PruneStage, ...]) -> tuple[Candidates, tuple[FunnelStage, ...]]:
    site = PruneSite(off={stage: "the test" for stage in PruneStage if stage not in subset})
    found = prune_files(site, merge.changes, merge.made.table, merge.files)
    assert {stage.name for stage in found.funnel if stage.left_out is None} <= {*subset, "NullKeys"}
    return found.candidates, found.funnel


def matched_outside(merge: Merge, candidates: Candidates, expected: dict[int, FileResult]) -> Iterator[str]:
    """Files with a match that are no candidates, or not for all source rows that they match."""
    parts = candidates.parts(merge.changes.slices)
    for file_id, result in expected.items():
        rows = [
            np.arange(part.start, part.stop) + merge.changes.slices[part.slice].base for part in parts.get(file_id, ())
        ]
        if not np.isin(result.source_rows(), np.concatenate([np.empty(0), *rows])).all():
            yield f"rows of file {file_id}"


def merged(merge: Merge, candidates: Candidates) -> tuple[FileResult, ...]:
    """What merging the candidates does to each of them."""
    parts = candidates.parts(merge.changes.slices)
    described = describe_files(merge.made.table, merge.files, sorted(file for file in parts if parts[file]))
    works = tuple(FileWork(file, parts[file.file_id]) for file in described)
    if not works:
        return ()
    write = write_spec(merge.made.table, f"run{len(works)}")
    name = f"t{merge.changes.slices[0].path.split('/')[-2]}-{os.urandom(4).hex()}"
    return merge_files(MergeWork(plan=merge.plan, write=write, slices=merge.changes.slices, files=works), name).files
