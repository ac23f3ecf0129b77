"""The checks of an installation, one after the other. Each answers with what is wrong, in sentences."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

from skipstone_operator.adapters.connection import ApiFault, Connection
from skipstone_operator.adapters.kube import KubeClient, Unprepared
from skipstone_operator.adapters.leases import KubeLeaseStore
from skipstone_operator.checking.rights import Right, build_review, lease_rights, watched_rights
from skipstone_operator.checking.schemas import OPENAPI, find_unknown_fields
from skipstone_operator.runtime.lease import LeaseRecord
from skipstone_operator.settings import Settings

REVIEWS = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
#: Fields or rights that one sentence names.
NAMED = 5
#: Questions that wait for an answer at the same time.
AT_ONCE = 16


@dataclass(frozen=True, kw_only=True)
class Patience:
    """Seconds. A Lease must be renewed within ``lease``, and is read every ``pause``."""

    lease: float = 120.0
    pause: float = 1.0


@dataclass(frozen=True, kw_only=True)
class Checks:
    """The checks of one installation, asked with the operator's own account."""

    connection: Connection
    settings: Settings
    patience: Patience = Patience()

    def all(self) -> Iterator[tuple[str, Awaitable[list[str]]]]:
        """What is checked, and what will be found wrong. Awaiting raises ApiFault."""
        yield "the cluster serves the CustomResourceDefinitions of this version", self.find_missing_fields()
        for namespace in self.settings.namespaces:
            title = f"the operator has its rights in namespace {namespace}"
            yield title, self.find_missing_rights(namespace, tuple(watched_rights()))
        system, lease = self.settings.operator_namespace, self.settings.lease_name
        title = f"the operator has its rights on Lease {system}/{lease}"
        yield title, self.find_missing_rights(system, tuple(lease_rights(lease)))
        yield "an operator works", self.find_absent_operator()

    async def find_missing_fields(self) -> list[str]:
        """Kinds and fields of this version that the cluster lacks."""
        try:
            await KubeClient(self.connection).check_resources()
        except Unprepared as error:
            return [str(error)]
        answer = await self.connection.request("GET", OPENAPI)
        if not answer.ok:
            return [f"the API server answers {answer.status} to GET {OPENAPI}: allow the group system:authenticated to"]
        advice = "apply the CRDs of this version (kubectl apply --server-side -f crds/)"
        unknown = find_unknown_fields(answer.body)
        return [f"the CRD of {kind} has no field {_some(fields)}: {advice}" for kind, fields in unknown.items()]

    async def find_missing_rights(self, namespace: str, rights: Sequence[Right]) -> list[str]:
        """The rights that the account lacks in the namespace."""
        turns = asyncio.Semaphore(AT_ONCE)

        async def ask(right: Right) -> bool:
            async with turns:
                answer = await self.connection.request("POST", REVIEWS, body=build_review(right, namespace))
            if not answer.ok:
                raise ApiFault(f"POST {REVIEWS}: {answer.status} {answer.body.get('message', '')}")
            return bool(answer.body["status"]["allowed"])

        allowed = await asyncio.gather(*map(ask, rights))
        lacking = [str(right) for right, may in zip(rights, allowed, strict=True) if not may]
        if not lacking:
            return []
        advice = "upgrade the release with this version's chart, or bind its Role there"
        return [f"namespace {namespace}: the operator may not {_some(lacking)}; {advice}"]

    async def find_absent_operator(self, sleep: Callable[[float], Awaitable[None]] = asyncio.sleep) -> list[str]:
        """Why no operator is seen to renew the Lease."""
        namespace, name = self.settings.operator_namespace, self.settings.lease_name
        store = KubeLeaseStore(KubeClient(self.connection), namespace, name)
        loop = asyncio.get_running_loop()
        first, end = await store.read(), loop.time() + self.patience.lease
        while loop.time() < end:
            now = await store.read()
            if _is_renewed(first, now):
                return []
            # An old operator that ends gives the Lease back: what counts begins with the one after it.
            first = now if now is None or first is None or not first.holder else first
            await sleep(self.patience.pause)
        log = f"look at the operator's log (kubectl logs --namespace {namespace} --selector NAME)"
        advice = log.replace("NAME", "app.kubernetes.io/component=operator")
        return [f"no operator renewed Lease {namespace}/{name} within {self.patience.lease:g} s: {advice}"]


def _is_renewed(before: LeaseRecord | None, now: LeaseRecord | None) -> bool:
    """Return whether the same holder has written the Lease again."""
    return (
        before is not None
        and now is not None
        and now.holder != ""
        and now.holder == before.holder
        and now.version != before.version
    )


def _some(names: Sequence[str]) -> str:
    more = len(names) - NAMED
    return ", ".join(islice(names, NAMED)) + (f" and {more} more" if more > 0 else "")
