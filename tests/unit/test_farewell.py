"""A namespace that goes away with the operator's Role must not be held by the operator's own finalizers."""

from __future__ import annotations

from typing import Any

import pytest
from skipstone_core.reasons import Reason
from skipstone_operator.labels import FINALIZER
from skipstone_operator.ports import AccessDenied, Key, Ports, Requeue, RunDefaults
from skipstone_operator.reconcilers import reconcile

from tests.unit.kube_double import MemoryKube
from tests.unit.operator_double import RecordingEvents, RecordingRuns, run_now

SPECS: dict[str, dict[str, Any]] = {
    "Warehouse": {"catalog": {"type": "Sql"}, "storage": {"pvc": {"claimName": "lake"}}},
    "Table": {
        "warehouseRef": {"name": "one"},
        "identifier": {"namespace": "db", "name": "one"},
        "columns": [{"name": "id", "type": "long"}],
    },
    "SecondaryIndex": {"tableRef": {"name": "one"}, "columns": ["id"]},
}
KINDS = tuple(SPECS)


@pytest.fixture
def kube() -> MemoryKube:
    """Three resources with our finalizer in a namespace whose pods and claims may not be read any more."""
    made = MemoryKube(unreadable={"Pod", "PersistentVolumeClaim", "LoadJob", "MergeJob"})
    for kind in KINDS:
        metadata: dict[str, Any] = {"namespace": "lake", "name": "one", "finalizers": ["other/kept", FINALIZER]}
        made.add({"apiVersion": "skipstone.dev/v1alpha1", "kind": kind, "metadata": metadata, "spec": SPECS[kind]})
    return made


def ports_of(kube: MemoryKube, events: RecordingEvents) -> Ports:
    defaults = RunDefaults(image="image", service_account="account")
    return Ports(
        kube=kube,
        clock=kube.clock,
        events=events,
        meter=RecordingRuns(),
        defaults=defaults,
        namespaces=("lake",),
    )


@pytest.mark.parametrize("kind", KINDS)
def test_our_finalizer_is_lifted_in_a_terminating_namespace(kube: MemoryKube, kind: str) -> None:
    kube.terminating.add("lake")
    events = RecordingEvents()
    assert run_now(reconcile(Key(kind, "lake", "one"), ports_of(kube, events))) == Requeue.never()
    assert kube.objects[kind, "lake", "one"]["metadata"]["finalizers"] == ["other/kept"]
    assert events.reasons() == [Reason.DATA_RETAINED]


@pytest.mark.parametrize("kind", KINDS)
def test_a_role_that_is_not_bound_lifts_nothing(kube: MemoryKube, kind: str) -> None:
    with pytest.raises(AccessDenied):
        run_now(reconcile(Key(kind, "lake", "one"), ports_of(kube, RecordingEvents())))
    assert FINALIZER in kube.objects[kind, "lake", "one"]["metadata"]["finalizers"]


def test_a_resource_that_is_gone_needs_no_word(kube: MemoryKube) -> None:
    kube.terminating.add("lake")
    assert run_now(reconcile(Key("Table", "lake", "gone"), ports_of(kube, RecordingEvents()))) == Requeue.never()
    assert kube.writes == []
