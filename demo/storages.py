"""Where the demonstration keeps its Warehouse: on a claim, or in a bucket with a REST catalog (STORAGE=s3).

Each storage makes what it needs, gives the Warehouse and the pods that reach it, and checks what only it can show.
"""

from __future__ import annotations

import secrets
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Any, Protocol

from demo import s3
from demo.install import make_folder
from demo.kube import EMBEDDED, ROOT, Kube, KubeError, condition
from demo.lakes import CATALOG_URI, ENDPOINT, REGION
from demo.manifests import claim, task_pod, volume
from tests.cluster.errors import ClusterError
from tests.cluster.traffic import watched_traffic

JsonObject = dict[str, Any]
EXAMPLES = ROOT / "examples" / "flights"
WAREHOUSE = "flights"
MOUNT = "/skipstone/flights"
CLAIM = "flights-data"
VOLUME = "skipstone-demo-flights"
BUCKET, PREFIX = "lake", "flights"
EXECUTORS = 2
#: The Secret with the token of those who read through the planning server.
READERS = "flights-readers"
SETTLE_SECONDS = 300.0


class Storage(Protocol):
    """One way to keep the Warehouse."""

    #: What the programs of pods are told, and what a person calls it.
    root: str
    name: str

    def watched(self) -> AbstractContextManager[None]:
        """Around the whole demonstration."""
        ...

    def prepare(self, tables: Kube) -> None:
        """Make what the Warehouse stands on, in the namespace of the tables."""
        ...

    def warehouse(self) -> Path | JsonObject:
        """The Warehouse."""
        ...

    def task(self, kube: Kube, name: str, command: Sequence[str]) -> JsonObject:
        """A pod of the demonstration's image that reaches the Warehouse."""
        ...

    def planning(self, tables: Kube) -> JsonObject:
        """``spec.planning`` of the Warehouse, and what it names."""
        ...

    def widen(self, tables: Kube) -> None:
        """Give runs more room, for the merge."""
        ...

    def prove(self, tables: Kube, ask: Callable[..., None]) -> None:
        """Check at the end what only this storage can show; ``ask`` runs a pod. Raises KubeError."""
        ...


class OnClaim:
    """A PersistentVolumeClaim; on the embedded cluster with a volume for it."""

    root, name = MOUNT, "claim"

    def watched(self) -> AbstractContextManager[None]:
        """Nothing to watch."""
        return nullcontext()

    def prepare(self, tables: Kube) -> None:
        """The claim."""
        if tables.embedded:
            tables.apply(volume(VOLUME, make_folder(VOLUME), tables.namespace, CLAIM))
        tables.apply(claim(CLAIM, volume_name=VOLUME if tables.embedded else None))

    def warehouse(self) -> Path | JsonObject:
        """As the guide shows it."""
        return EXAMPLES / "01-warehouse.yaml"

    def task(self, kube: Kube, name: str, command: Sequence[str]) -> JsonObject:
        """A pod that mounts the claim."""
        policy = kube.images.pull_policy
        return task_pod(name, kube.images.demo, command, claim=CLAIM, mount=MOUNT, pull_policy=policy)

    def planning(self, tables: Kube) -> JsonObject:
        """A token opens the front of the SQLite catalog."""
        text = {"tokens": secrets.token_urlsafe(32)}
        tables.apply({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": READERS}, "stringData": text})
        return {"tokensSecretRef": {"name": READERS, "key": "tokens"}}

    def widen(self, tables: Kube) -> None:
        """The claim keeps all pods on one node, so drivers do everything."""

    def prove(self, tables: Kube, ask: Callable[..., None]) -> None:
        """Nothing more."""


class InBucket:
    """A bucket of an S3 server and a REST catalog, both in pods beside the tables. No claim anywhere."""

    root, name = f"s3://{BUCKET}/{PREFIX}", "bucket"
    #: An address for documentation: a pod calls it to show that the watch sees such calls. It gets no further.
    stranger = ("203.0.113.1", 9)

    def __init__(self) -> None:
        """Nothing runs yet."""
        self._endpoints = s3.Endpoints(s3="", catalog="")
        self._outside: Callable[[], list[str]] = list

    @contextmanager
    def watched(self) -> Iterator[None]:
        """The kernel notes where pods go."""
        try:
            with watched_traffic() as self._outside:
                yield
        except ClusterError as error:
            raise KubeError(str(error)) from error

    def prepare(self, tables: Kube) -> None:
        """Both servers, ready."""
        self._endpoints = s3.start(tables, buckets=(BUCKET,), warehouses={WAREHOUSE: self.root})
        print(f"bucket {BUCKET} at {self._endpoints.s3}, catalog at {self._endpoints.catalog}")

    def warehouse(self) -> Path | JsonObject:
        """In the bucket, with drivers alone."""
        return bucket_warehouse(self._endpoints)

    def task(self, kube: Kube, name: str, command: Sequence[str]) -> JsonObject:
        """A pod that has the keys of the bucket."""
        settings = {ENDPOINT: self._endpoints.s3, REGION: s3.REGION, CATALOG_URI: self._endpoints.catalog}
        settings |= {"AWS_EC2_METADATA_DISABLED": "true"}
        env = [
            *({"name": key, "value": value} for key, value in settings.items()),
            *(s3.key_variable(key, key) for key in s3.KEYS),
        ]
        return task_pod(name, kube.images.demo, command, env=env, pull_policy=kube.images.pull_policy)

    def planning(self, tables: Kube) -> JsonObject:
        """The catalog asks nobody for a token, and is within the cluster."""
        return {"replicas": 1, "allowPlaintextTokens": True}

    def widen(self, tables: Kube) -> None:
        """Executors for the runs from now on: nothing ties them to a node."""
        patch = f'{{"spec":{{"spark":{{"executor":{{"instances":{EXECUTORS}}}}}}}}}'
        print(f"$ kubectl patch wh {WAREHOUSE} --type merge -p '{patch}'")
        tables.run("patch", "wh", WAREHOUSE, "--type", "merge", "-p", patch)
        tables.wait_for("the Warehouse is Ready again", lambda: is_judged_ready(tables), seconds=SETTLE_SECONDS)

    def prove(self, tables: Kube, ask: Callable[..., None]) -> None:
        """Executors ran, nothing is on a volume, and nobody went outside of the cluster."""
        executors = started_executors(tables)
        if len(executors) < EXECUTORS:
            raise KubeError(f"{len(executors)} executor pods ran, expected {EXECUTORS} or more")
        if claims := tables.items("persistentvolumeclaims"):
            raise KubeError(f"there is a claim: {claims[0]['metadata']['name']}")
        if gone := self._outside():
            raise KubeError(f"pods called addresses outside of the cluster: {', '.join(gone)}")
        self._prove_watch(ask)
        print(f"{len(executors)} executor pods ran, there is no claim, and no pod called an address outside")

    def _prove_watch(self, ask: Callable[..., None]) -> None:
        """A watch that sees nothing proves something only if it can see."""
        call = f"import socket; s = socket.socket(); s.settimeout(1); s.connect_ex({self.stranger!r})"
        ask("stranger", "python", "-c", call)
        if self._outside() != [f"{self.stranger[0]} tcp {self.stranger[1]}"]:
            raise KubeError(f"a call to {self.stranger[0]} was not seen, so nobody knows where the others went")


def bucket_warehouse(endpoints: s3.Endpoints) -> JsonObject:
    """The Warehouse of the flights in a bucket. Its pods ask for little, so that a small node takes several."""
    place = {
        "bucket": BUCKET,
        "prefix": PREFIX,
        "region": s3.REGION,
        "endpoint": endpoints.s3,
        "pathStyleAccess": True,
        "credentialsSecretRef": {"name": s3.SECRET},
    }
    requests = {"driver": "300m", "executor": "200m"}
    spark = {
        "driver": {"cores": 1, "memory": "1Gi"},
        "executor": {"instances": 0, "cores": 1, "memory": "1Gi"},
        "conf": {f"spark.kubernetes.{side}.request.cores": cores for side, cores in requests.items()},
    }
    spec = {
        "catalog": {"type": "Rest", "uri": endpoints.catalog, "properties": {"warehouse": WAREHOUSE}},
        "storage": {"s3": place},
        "maxConcurrentRuns": 2,
        "spark": spark,
    }
    return {
        "apiVersion": "skipstone.dev/v1alpha1",
        "kind": "Warehouse",
        "metadata": {"name": WAREHOUSE},
        "spec": spec,
    }


def is_judged_ready(tables: Kube) -> bool:
    """Whether the Warehouse is Ready as it is now declared."""
    warehouse = tables.get("wh", WAREHOUSE) or {}
    judged = warehouse.get("status", {}).get("observedGeneration") == warehouse.get("metadata", {}).get("generation")
    return judged and condition(warehouse, "Ready").get("status") == "True"


def started_executors(tables: Kube) -> set[str]:
    """Names of all executor pods that ran: events outlive pods."""
    events = [event for event in tables.items("events") if event.get("reason") == "Started"]
    names = {str(event["involvedObject"]["name"]) for event in events}
    return {name for name in names if "-exec-" in name}


def remove_volume(kube: Kube) -> None:
    """Remove the volume of the claim and its folder, which outlive the namespace of the tables."""
    kube.run("delete", "pv", VOLUME, "--ignore-not-found")
    if kube.embedded:
        shutil.rmtree(EMBEDDED / "volumes" / VOLUME, ignore_errors=True)


def choose_storage(kube: Kube, wanted: str) -> Storage:
    """The storage that STORAGE names. Raises KubeError for another name, or where the cluster has no images for it."""
    if wanted == "volume":
        return OnClaim()
    if wanted != "s3":
        raise KubeError(f"STORAGE is {wanted!r}: choose volume or s3")
    if not kube.embedded:
        raise KubeError("STORAGE=s3 needs the embedded cluster: leave out CLUSTER=current")
    return InBucket()
