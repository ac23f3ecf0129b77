"""Runs in a bucket while S3 fails: a sample of the campaign, all of which is `make soak-s3`."""

from __future__ import annotations

import os
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField, StringType

from tests.examples import cases
from tests.s3client import S3Client
from tests.spark.postgres import Server, postgres
from tests.spark.s3_bed import S3Bed, pod
from tests.spark.s3_faults import Campaign, Draw, Trouble, Work, draw

SCHEMA = Schema(NestedField(1, "id", LongType()), NestedField(2, "name", StringType()))
SEED = int(os.environ.get("SKIPSTONE_SOAK_SEED", "1"))
RUNS = int(os.environ.get("SKIPSTONE_SOAK_CASES", "308"))
#: Faults of several kinds, one for each run that writes.
SAMPLE = (
    Draw(1, Work.LOAD, Trouble.UNHEARD, 8, 3),
    Draw(2, Work.MERGE, Trouble.CUT, 6, 4),
    Draw(3, Work.MARK, Trouble.FULL, 8, 10_000),
    Draw(4, Work.CONSUME, Trouble.GONE, 7, 10_000),
    Draw(5, Work.REINDEX, Trouble.EXPIRED, 6, 10_000),
)


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with postgres() as found, pod(found):
        yield found


@pytest.fixture
def campaign(bucket: S3Client, server: Server, tmp_path: Path) -> Campaign:
    bed = S3Bed(bucket, server)
    bed.create(SCHEMA)
    made = Campaign(bed, tmp_path)
    made.append({number: f"first {number}" for number in range(40)}, "first", 0)
    made.index()
    return made


def test_runs_are_right_whatever_s3_does(campaign: Campaign) -> None:
    ended: dict[Trouble, Counter[str]] = defaultdict(Counter)
    wrong: list[str] = []
    for drawn in [*SAMPLE, *(draw(SEED, number) for number in range(10, 10 + cases(0, RUNS)))]:
        try:
            result = campaign.run(drawn)
        except AssertionError as error:
            wrong.append(str(error))
            result = f"WRONG: {error}"
        ended[drawn.trouble][result.partition(":")[0]] += 1
        print(f"{drawn}: {result}", flush=True)
    for trouble, results in ended.items():
        print(f"{trouble.value}: {sum(results.values())} runs; {dict(results)}")
    assert not wrong, "\n".join(wrong)
