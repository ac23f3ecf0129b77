"""dlt: a pipeline into files, with merges. ``python dlt_writer.py ROOT``."""

from __future__ import annotations

import os
import sys

import dlt
from rows import attempt, newest_metadata, rows

ROOT = sys.argv[1]
os.environ["DLT_DATA_DIR"] = f"{ROOT}/dlt"


def run(name: str, data: list[dict[str, object]], disposition: str = "append") -> None:
    """One run of a pipeline of its own."""
    pipeline = dlt.pipeline(
        name, pipelines_dir=f"{ROOT}/pipelines", destination=dlt.destinations.filesystem(f"file://{ROOT}/{name}")
    )
    resource = dlt.resource(data, name="items", primary_key="id", write_disposition=disposition, table_format="iceberg")
    pipeline.run(resource).raise_on_failed_jobs()


def located(name: str, count: int) -> dict[str, object]:
    """The newest metadata file of a pipeline's table."""
    return {"metadata": newest_metadata(f"{ROOT}/{name}/{name}_dataset/items"), "rows": count}


def appended() -> dict[str, object]:
    """Two appends."""
    run("appended", rows())
    run("appended", rows(60))
    return located("appended", 120)


def merged() -> dict[str, object]:
    """An upsert of rows of which half are new."""
    upsert = {"disposition": "merge", "strategy": "upsert"}
    run("merged", rows(), upsert)
    changed = [{**row, "txt": "updated by an engine"} for row in rows(30)]
    run("merged", changed, upsert)
    return located("merged", 90)


def evolved() -> dict[str, object]:
    """A column more, and one less, in the second append."""
    run("evolved", rows())
    more = [{**{k: v for k, v in row.items() if k != "flag"}, "extra": "more"} for row in rows(60)]
    run("evolved", more)
    return located("evolved", 120)


attempt("append", appended)
attempt("merge", merged)
attempt("evolved", evolved)
