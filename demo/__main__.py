"""The demonstration on a cluster, step by step: `python -m demo`, as `make demo CLUSTER=embedded` calls it.

Installs the chart, loads ten months of flights, indexes them, lets two more months arrive while an index is
suspended, queries in between, merges a CDC feed and verifies everything with engines that are not ours.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Callable, Sequence

from demo.install import SYSTEM, install_arguments, is_watched, lift_finalizers
from demo.kube import JsonObject, Kube, KubeError, address, condition
from demo.manifests import namespace
from demo.steps import is_in_sync, skipped, step, without_age
from demo.storages import EXAMPLES, Storage, choose_storage, remove_volume

TABLES = "flights"
JOB_SECONDS = 900.0


class Demo:
    """The steps in order; each prints what a person would type and see."""

    def __init__(self, kube: Kube, storage: Storage) -> None:
        """Remember the cluster and where the Warehouse will be; nothing is done yet."""
        self.system = kube.within(SYSTEM)
        self.tables = kube.within(TABLES)
        self.storage = storage

    def run(self) -> None:
        """All steps. Raises KubeError at the first that fails."""
        if self.system.get("namespace", TABLES):
            with step("remove an earlier demonstration"):
                tear_down(self.system)
        with step("install the operator with Helm, everything under Pod Security restricted"):
            self.install()
        with step(f"lay 12 monthly CSV files (336,776 flights) and a CDC feed into the {self.storage.name}"):
            self.program("lay")
        with step("declare a Warehouse, a Table, ten loads and two indexes"):
            self.declare()
        with step("suspend one index, let November and December arrive"):
            self.let_two_months_arrive()
        with step("query while the index lags: 10 of 12 segments by the index, 2 by min/max"):
            self.program("query", "nyc.flights")
        with step("resume: the index catches up"):
            self.resume()
        with step("let plain Spark SQL and PyIceberg use the indexes, through the Warehouse's planning server"):
            self.serve_others()
        with step("merge corrections, cancellations and added flights"):
            self.merge()
        with step("verify with plain Spark + Iceberg against a DuckDB replay of CSV and feed"):
            self.program("verify", "nyc.flights")
        self.storage.prove(self.tables, self.task)
        self.show("tbl,si,lj,mj")
        print(f"\nAll flights are right: {self.skipped()}")

    def install(self) -> None:
        """Namespaces, storage and the chart."""
        self.system.apply(namespace(SYSTEM), namespace(TABLES))
        self.storage.prepare(self.tables)
        self.system.run_helm(*install_arguments(self.system, (TABLES,)))

    def declare(self) -> None:
        """Apply the manifests in one go, in any order, and watch the ten segments appear."""
        names = ("02-table", "03-loads-january-to-october", "04-indexes")
        self.tables.apply(self.storage.warehouse(), *(EXAMPLES / f"{name}.yaml" for name in names))
        self.wait("wh/flights", "Ready", 300)
        self.wait("tbl/flights", "Ready", 300)
        self.watch("lj", lambda: self.all_complete("loadjobs"), "ten loads complete")
        self.watch("si", lambda: self.synced() == {"10/10"}, "both indexes cover 10 of 10 segments")
        self.show("wh,tbl")

    def let_two_months_arrive(self) -> None:
        """Suspend `by-tailnum`; the other index goes on."""
        self.tables.run("patch", "si", "by-tailnum", "--type", "merge", "-p", '{"spec":{"suspend":true}}')
        self.tables.apply(EXAMPLES / "05-loads-november-december.yaml")
        self.watch("lj", lambda: self.all_complete("loadjobs"), "loads 11 and 12 complete")
        self.watch("si", lambda: self.synced() == {"10/12", "12/12"}, "by-tailnum lags at 10/12")

    def resume(self) -> None:
        """Lift the suspension."""
        self.tables.run("patch", "si", "by-tailnum", "--type", "merge", "-p", '{"spec":{"suspend":false}}')
        self.watch("si", lambda: self.synced() == {"12/12"}, "both indexes cover 12 of 12 segments")

    def serve_others(self) -> None:
        """Start the server that plans scans, and ask it with engines that know nothing of Skipstone."""
        planning = self.storage.planning(self.tables)
        patch = json.dumps({"spec": {"planning": planning}})
        print(f"$ kubectl patch wh flights --type merge -p '{patch}'")
        self.tables.run("patch", "wh", "flights", "--type", "merge", "-p", patch)
        self.wait("wh/flights", "PlanningReady", 300)
        self.show("wh")
        env: list[JsonObject] = [{"name": "DEMO_PLANNING_URL", "value": address(self.tables, "flights-planning")}]
        if secret := planning.get("tokensSecretRef"):
            env.append({"name": "DEMO_PLANNING_TOKEN", "valueFrom": {"secretKeyRef": secret}})
        self.program("engines", "nyc.flights", env=env)

    def merge(self) -> None:
        """Apply the feed; then both indexes follow the segments that the merge wrote."""
        self.storage.widen(self.tables)
        self.tables.apply(EXAMPLES / "06-merge.yaml")
        self.watch("mj", lambda: self.all_complete("mergejobs"), "the merge completes")
        self.watch("si", lambda: is_in_sync(self.synced()), "indexes in sync")

    def skipped(self) -> str:
        """What the merge did not have to touch."""
        return skipped(self.tables.get("mj", "flights-corrections") or {})

    def program(self, name: str, *arguments: str, env: Sequence[JsonObject] = ()) -> None:
        """Run a program of the demonstration on the Warehouse."""
        self.task(name, "python", "-m", f"demo.{name}", self.storage.root, *arguments, env=env)

    def task(self, name: str, *command: str, env: Sequence[JsonObject] = ()) -> None:
        """Run a pod of the demonstration's image to its end and print what it says."""
        pod = f"demo-{name}"
        self.tables.run("delete", "pod", pod, "--ignore-not-found", "--wait=true")
        made = self.storage.task(self.tables, pod, command)
        made["spec"]["containers"][0]["env"] += env
        self.tables.apply(made)
        self.tables.wait_for(f"pod {pod} ends", lambda: self.phase(pod) in {"Succeeded", "Failed"}, seconds=JOB_SECONDS)
        print(self.tables.run("logs", pod, "--tail=60"))
        if self.phase(pod) != "Succeeded":
            raise KubeError(f"pod {pod} failed")

    def phase(self, pod: str) -> str:
        """The pod's phase, empty when it is gone."""
        return str((self.tables.get("pod", pod) or {}).get("status", {}).get("phase", ""))

    def wait(self, resource: str, kind: str, seconds: int) -> None:
        """kubectl wait for a condition."""
        print(f"$ kubectl wait {resource} --for=condition={kind}")
        print(self.tables.run("wait", resource, f"--for=condition={kind}", f"--timeout={seconds}s"), end="")

    def all_complete(self, plural: str) -> bool:
        """Whether every job of the kind is complete. Raises KubeError as soon as one failed."""
        jobs = self.tables.items(plural)
        for job in jobs:
            if condition(job, "Failed").get("status") == "True":
                failed = condition(job, "Failed")
                raise KubeError(f"{job['metadata']['name']} failed: {failed['reason']}: {failed['message']}")
        return bool(jobs) and all(condition(job, "Complete").get("status") == "True" for job in jobs)

    def synced(self) -> set[str]:
        """The SYNCED strings of both indexes."""
        return {str(index.get("status", {}).get("synced", "")) for index in self.tables.items("secondaryindexes")}

    def watch(self, kinds: str, done: Callable[[], bool], what: str) -> None:
        """Print the kubectl table each time it changes (ages left aside) until ``done``."""
        print(f"$ kubectl get {kinds} --watch    # until {what}", flush=True)
        shown = ""

        def look() -> bool:
            nonlocal shown
            table = without_age(self.tables.run("get", kinds, check=False))
            if table != shown:
                print(table, flush=True)
                shown = table
            return done()

        self.tables.wait_for(what, look, seconds=JOB_SECONDS, every=2.0)

    def show(self, kinds: str) -> None:
        """Print the kubectl table once."""
        print(f"$ kubectl get {kinds}\n{self.tables.run('get', kinds)}")


def tear_down(kube: Kube) -> None:
    """Remove all that the demonstration made: jobs and indexes first, then the release and the namespaces.

    Its operator may be gone, or watch others now: then nobody else lifts the finalizers.
    """
    tables = kube.within(TABLES)
    if is_watched(kube, TABLES):
        tables.run("delete", "mj,lj,si,tbl,wh", "--all", "--timeout=180s", check=False)
    else:
        lift_finalizers(tables)
    kube.within(SYSTEM).run("delete", "namespace", TABLES, "--ignore-not-found", "--timeout=180s")
    remove_volume(kube.within(SYSTEM))
    if kube.within(SYSTEM).run("get", "namespace", SYSTEM, "--ignore-not-found"):
        kube.within(SYSTEM).run_helm("uninstall", "skipstone", "--ignore-not-found", "--wait")
        kube.within(SYSTEM).run("delete", "namespace", SYSTEM, "--timeout=120s")


def main(argv: list[str]) -> int:
    """Command line: ``python -m demo [--down]``."""
    parser = argparse.ArgumentParser(prog="demo")
    parser.add_argument("--down", action="store_true", help="remove what the demonstration made")
    arguments = parser.parse_args(argv)
    try:
        kube = Kube.find()
        storage = choose_storage(kube, os.environ.get("STORAGE", "volume"))
        if arguments.down:
            tear_down(kube)
            return 0
        with storage.watched():
            Demo(kube, storage).run()
    except KubeError as error:
        print(f"demo: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
