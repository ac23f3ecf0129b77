"""Executor pods as tests see them: which there were, and that they did the work."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from demo.kube import EMBEDDED
from tests.e2e.lake import JsonObject, Lake, has_ended, spark


def executors_of(instances: int) -> JsonObject:
    """spec.spark of small runs on so many executors, which ask for little of the node."""
    sizes = spark("100m")
    conf = {**sizes["conf"], "spark.kubernetes.executor.request.cores": "100m"}
    return sizes | {"executor": {"instances": instances, "cores": 1, "memory": "768Mi"}, "conf": conf}


@dataclass(frozen=True)
class Ended:
    """The executor pods of a resource, and how many tasks they finished."""

    pods: frozenset[str]
    tasks: int


@dataclass
class Executors:
    """Reads the node's logs of executors. They are held open, since the node removes them with the pods."""

    lake: Lake
    _pods: set[str] = field(default_factory=set)
    _logs: dict[Path, IO[str]] = field(default_factory=dict)

    def until_complete(self, kind: str, name: str) -> tuple[JsonObject, Ended]:
        """Wait until the job is Complete; returns it with its executors."""
        ended = self.until(kind, name, has_ended)
        return self.lake.until_complete(kind, name), ended

    def until(self, kind: str, name: str, done: Callable[[JsonObject], bool]) -> Ended:
        """Wait until ``done`` holds for the resource, and look at its executors meanwhile."""

        def look(found: JsonObject) -> bool:
            self._look(found["metadata"]["uid"])
            return done(found)

        self.lake.until(kind, name, look)
        return Ended(frozenset(self._pods), sum(map(_finished, self._logs.values())))

    def _look(self, uid: str) -> None:
        kube = self.lake.kube
        pods = kube.items("pods", f"skipstone.dev/owner-uid={uid},spark-role=executor")
        self._pods.update(pod["metadata"]["name"] for pod in pods)
        for log in (EMBEDDED / "log" / "pods").glob(f"{kube.namespace}_{uid[:8]}-*-exec-*/*/*.log"):
            if log not in self._logs:
                with suppress(FileNotFoundError):  # gone meanwhile
                    self._logs[log] = log.open(errors="replace")


def _finished(log: IO[str]) -> int:
    """Tasks of an executor, by its log, which is closed."""
    with log:
        return log.read().count("Finished task ")
