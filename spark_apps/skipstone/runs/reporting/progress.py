"""Tells how far a Spark job is while the driver waits for it.

Used by runs around their actions. A helper thread asks Spark's status tracker; it never touches the job.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from py4j.protocol import Py4JError
from pyspark import SparkContext, StatusTracker
from pyspark.sql import SparkSession

from skipstone.runs.reporting.report import Reporter

POLL_SECONDS = 1.0


@contextmanager
def task_progress(spark: SparkSession, reporter: Reporter, doing: str) -> Iterator[None]:
    """Report ``doing`` and the number of finished tasks of the jobs started inside."""
    context = spark.sparkContext
    group = f"{reporter.request.run_id}-{doing}"
    context.setJobGroup(group, doing)
    stop = threading.Event()
    thread = threading.Thread(target=_watch, args=(context, reporter, group, doing, stop), daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def _watch(context: SparkContext, reporter: Reporter, group: str, doing: str, stop: threading.Event) -> None:
    tracker = context.statusTracker()
    while not stop.wait(POLL_SECONDS):
        try:
            done, total = count_tasks(tracker, group)
        except Py4JError:
            return  # the session is going away: its end is the driver's to tell
        reporter.progress(f"{doing}: {done} of {total} tasks done", {"tasksDone": done, "tasksTotal": total})


def count_tasks(tracker: StatusTracker, group: str) -> tuple[int, int]:
    """Finished tasks and all tasks of the stages that ``group`` has started."""
    jobs = [info for job in tracker.getJobIdsForGroup(group) if (info := tracker.getJobInfo(job))]
    stages = [stage_info for job in jobs for stage in job.stageIds if (stage_info := tracker.getStageInfo(stage))]
    return sum(stage.numCompletedTasks for stage in stages), sum(stage.numTasks for stage in stages)
