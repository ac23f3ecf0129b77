"""What users do in the moment between the intent of a run and its pod, on a real API server."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from tests.cluster.controlplane import ControlPlane
from tests.kube.reconcile_lab import CheckedKube, Obj, Site, run_scenario
from tests.unit.objects import claim, load, table, warehouse


class Meddling(CheckedKube):
    """Lets a user act once, after the ConfigMap of a load was created: its intent is written, its pod is not.

    ``loads`` are the drivers of loads that were created.
    """

    act: Callable[[], Awaitable[None]] | None
    loads: list[str]

    async def create(self, obj: Obj) -> Any:
        answer = await super().create(obj)
        if operation(obj) == "Load":
            await self._created(obj)
        return answer

    async def _created(self, obj: Obj) -> None:
        if obj["kind"] == "Pod":
            self.loads.append(obj["metadata"]["name"])
        elif self.act is not None:
            act = self.act
            object.__setattr__(self, "act", None)
            await act()


def operation(obj: Obj) -> str:
    return str((obj["metadata"].get("labels") or {}).get("skipstone.dev/operation", ""))


def meddle(site: Site, act: Callable[[], Awaitable[None]]) -> Meddling:
    """Have ``act`` done in that moment of the next load."""
    kube = Meddling(site.kube.connection)
    object.__setattr__(kube, "writes", site.kube.writes)
    object.__setattr__(kube, "act", act)
    object.__setattr__(kube, "loads", [])
    site.kube = kube
    return kube


async def ready(site: Site) -> None:
    held = claim()
    held["spec"] |= {"resources": {"requests": {"storage": "1Gi"}}, "storageClassName": "none"}
    await site.apply(held, warehouse(), table())
    await site.holds("Table", "flights", "Ready")


def set_suspend(job: Obj, *, suspend: bool) -> None:
    job["spec"]["suspend"] = suspend


@pytest.mark.parametrize("deed", ["suspended", "deleted"])
def test_a_job_that_stops_being_wanted_after_its_intent_gets_no_driver(
    control_plane: ControlPlane, namespace: str, monkeypatch: pytest.MonkeyPatch, deed: str
) -> None:
    monkeypatch.setenv("KUBECONFIG", str(control_plane.kubeconfig_admin))

    async def scenario(site: Site) -> None:
        await ready(site)

        async def act() -> None:
            if deed == "deleted":
                await site.remove("LoadJob", "jan")
            else:
                await site.edit("LoadJob", "jan", lambda job: set_suspend(job, suspend=True))

        kube = meddle(site, act)
        await site.apply(load("jan"))
        if deed == "deleted":
            await site.gone("LoadJob", "jan")
            await site.round()
            assert kube.loads == []
        else:
            await site.shows("LoadJob", "jan", "Progressing", "Suspended")
            assert kube.loads == []
            await site.edit("LoadJob", "jan", lambda job: set_suspend(job, suspend=False))
            await site.holds("LoadJob", "jan", "Complete")
            assert len(kube.loads) == 1

    run_scenario(control_plane, namespace, scenario)
