"""The Lease as an object of the API: implements ``runtime.lease.LeaseStore``."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime

from skipstone_operator.adapters.connection import ApiFault
from skipstone_operator.ports import Created, Exists, JsonObject, KubeApi, Refused, Updated
from skipstone_operator.runtime.lease import LeaseRecord

MICRO_TIME = "%Y-%m-%dT%H:%M:%S.%fZ"
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True)
class KubeLeaseStore:
    """One Lease of coordination.k8s.io."""

    kube: KubeApi
    namespace: str
    name: str

    async def read(self) -> LeaseRecord | None:
        """The Lease, or None. Raises ApiFault."""
        lease = await self.kube.get("Lease", self.namespace, self.name)
        return None if lease is None else as_record(lease)

    async def create(self, record: LeaseRecord) -> LeaseRecord | None:
        """The Lease as stored, or None when it exists. Raises ApiFault."""
        answer = await self.kube.create(self._manifest(record))
        if isinstance(answer, Refused):
            raise ApiFault(f"create Lease {self.namespace}/{self.name}: {answer.status} {answer.message}")
        return None if isinstance(answer, Exists) else as_record(_created(answer))

    async def replace(self, record: LeaseRecord) -> LeaseRecord | None:
        """The Lease as stored, or None when it changed or is gone. Raises ApiFault."""
        answer = await self.kube.replace(self._manifest(record))
        if isinstance(answer, Refused):
            raise ApiFault(f"update Lease {self.namespace}/{self.name}: {answer.status} {answer.message}")
        return as_record(answer.object) if isinstance(answer, Updated) else None

    def _manifest(self, record: LeaseRecord) -> JsonObject:
        metadata = {"name": self.name, "namespace": self.namespace}
        if record.version:
            metadata["resourceVersion"] = record.version
        spec = {
            "holderIdentity": record.holder,
            "leaseDurationSeconds": record.duration_seconds,
            "acquireTime": record.acquired.strftime(MICRO_TIME),
            "renewTime": record.renewed.strftime(MICRO_TIME),
            "leaseTransitions": record.transitions,
        }
        return {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": metadata, "spec": spec}


def as_record(lease: JsonObject) -> LeaseRecord:
    """A record of what another program may have written: every field of the spec is optional."""
    spec = lease.get("spec") or {}
    return LeaseRecord(
        holder=spec.get("holderIdentity") or "",
        duration_seconds=int(spec.get("leaseDurationSeconds") or 0),
        renewed=_as_time(spec.get("renewTime")),
        acquired=_as_time(spec.get("acquireTime")),
        transitions=int(spec.get("leaseTransitions") or 0),
        version=lease["metadata"]["resourceVersion"],
    )


def _created(answer: Created) -> JsonObject:
    return answer.object


def _as_time(text: str | None) -> datetime:
    return datetime.fromisoformat(text) if text else EPOCH
