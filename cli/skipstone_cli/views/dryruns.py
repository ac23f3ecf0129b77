"""The dry run of a merge: the MergeJob that is created for it, and what its status tells.

Called by ``merge --dry-run``. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import yaml
from skipstone_core.reasons import Reason
from skipstone_core.remedies import find_remedy

from skipstone_cli.documents import ManifestLoader
from skipstone_cli.errors import CliError
from skipstone_cli.kinds import API_VERSION, GROUP, MERGE_JOB, SCHEDULE, Target, require_name
from skipstone_cli.reading import JsonObject, field_of, is_set, name_of, namespace_of, text_of, uid_of
from skipstone_cli.views.outcomes import Outcome
from skipstone_cli.views.standings import State, conditions_of, judge

#: The label of MergeJobs that were created for a dry run.
DRY_RUN_LABEL = f"{GROUP}/dry-run"
#: Seconds after which the operator removes a dry run that has ended, should this command not live to do it.
TTL = 600
MAX_NAME = 63
#: Fields of a job that say when it runs and how long it stays, not what it does.
_OWN_FIELDS = ("dryRun", "suspend", "ttlSecondsAfterFinished")


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """The merge that a user asks about. ``schedule``: the MergeSchedule whose merge it is."""

    origin: Target
    spec: JsonObject
    namespace: str = ""
    schedule: JsonObject | None = None

    @property
    def table(self) -> str:
        """The name of the Table."""
        return text_of(self.spec, "tableRef", "name")


def read_wanted(text: str, file: str) -> Wanted:
    """The MergeJob in ``text``, the content of ``file``. Raises CliError."""
    try:
        documents = [document for document in yaml.load_all(text, Loader=ManifestLoader) if document is not None]
    except (ValueError, RecursionError, yaml.YAMLError) as error:
        reason = " ".join(str(error).split())
        raise CliError(f"{file} is not YAML that can be read: {reason}") from error
    job = _only_job(documents, file)
    name = name_of(job) or text_of(job, "metadata", "generateName").rstrip("-.")
    target = Target(MERGE_JOB, require_name(name or "merge", f"the name of a MergeJob in {file}"))
    spec = field_of(job, "spec")
    return Wanted(origin=target, spec=_spec(spec, f"the MergeJob in {file}"), namespace=namespace_of(job))


def _only_job(documents: Iterable[object], file: str) -> object:
    jobs = [document for document in documents if text_of(document, "kind") == MERGE_JOB.name]
    if len(jobs) != 1:
        raise CliError(f"{file} holds {len(jobs)} MergeJobs: name a file that holds one")
    if (version := text_of(jobs[0], "apiVersion")) != API_VERSION:
        raise CliError(f"the MergeJob in {file} has the apiVersion {version!r}: write {API_VERSION}")
    return jobs[0]


def wanted_of(schedule: JsonObject) -> Wanted:
    """The merge that a MergeSchedule would create now. Raises CliError."""
    target = Target(SCHEDULE, name_of(schedule))
    spec = field_of(schedule, "spec", "mergeTemplate", "spec")
    return Wanted(origin=target, spec=_spec(spec, str(target)), schedule=schedule)


def _spec(spec: object, what: str) -> JsonObject:
    if not isinstance(spec, dict) or not text_of(spec, "tableRef", "name"):
        raise CliError(f"{what} names no Table: write spec.tableRef.name")
    return spec


def build_dry_run(wanted: Wanted, token: str) -> JsonObject:
    """The MergeJob, which waits to be told to begin. ``token`` makes its name the only one."""
    tail = f"-dry-run-{token}"
    name = wanted.origin.name[: MAX_NAME - len(tail)].rstrip("-.") + tail
    metadata: JsonObject = {"name": name, "labels": {DRY_RUN_LABEL: "true"}}
    if wanted.schedule is not None:
        # Whose memory of consumed files counts. It is not a controller: the schedule must not take the job for its own.
        owner = {"kind": SCHEDULE.name, "name": name_of(wanted.schedule), "uid": uid_of(wanted.schedule)}
        metadata["ownerReferences"] = [{"apiVersion": API_VERSION, **owner, "controller": False}]
    spec = {name: value for name, value in wanted.spec.items() if name not in _OWN_FIELDS}
    ours = {"dryRun": True, "suspend": True, "ttlSecondsAfterFinished": TTL}
    return {"apiVersion": API_VERSION, "kind": MERGE_JOB.name, "metadata": metadata, "spec": {**spec, **ours}}


def find_understood(job: JsonObject) -> bool | None:
    """Return whether the operator treats the suspended job as a dry run; None until its status says so.

    A job that has failed already never begins.
    """
    if is_set(job, "status", "dryRun") or judge(MERGE_JOB, job).failed:
        return True
    progress = conditions_of(job).get("Progressing")
    return False if progress is not None and progress.reason == Reason.SUSPENDED else None


def find_end(job: JsonObject) -> Outcome | None:
    """How the dry run ended; None while it has not."""
    standing = judge(MERGE_JOB, job)
    if standing.state is State.COMPLETE and standing.reason == Reason.DRY_RUN:
        return Outcome(succeeded=True, message=standing.message)
    if standing.state in (State.RUNNING, State.WAITING, State.UNKNOWN):
        return None
    way_out = find_remedy(standing.reason)
    reason = f"{standing.reason}: {standing.message.rstrip('.')}".removesuffix(": ")
    return Outcome(succeeded=False, message=f"the dry run has failed: {reason}" + (f"; {way_out}" if way_out else ""))
