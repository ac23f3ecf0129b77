"""Worlds in motion for tests of whole lives: a ready table, and what is seen of its runs."""

from __future__ import annotations

from typing import Any, TypeVar

from skipstone_operator.ports import Refused

from tests.unit.objects import claim, table, warehouse
from tests.unit.operator_double import World

Settled = TypeVar("Settled", bound=World)


def started(*objects: dict[str, Any], **timing: Any) -> World:
    """A world with a ready Warehouse and Table, and then these objects."""
    return settled(World(**timing), *objects)


def settled(world: Settled, *objects: dict[str, Any]) -> Settled:
    """This world once its Warehouse and Table are ready, and then with these objects."""
    for obj in (claim(), warehouse(), table()):
        world.kube.add(obj)
    world.run_until(lambda: world.holds("Table", "flights", "Ready"))
    for obj in objects:
        world.kube.add(obj)
    return world


def job(world: World, name: str = "jan", kind: str = "LoadJob") -> tuple[str, str]:
    return world.kube.condition(kind, name, "Progressing")


def synced(world: World, name: str = "by-tail") -> str:
    return str(world.kube.status("SecondaryIndex", name).get("synced", ""))


def until(world: World, kind: str, name: str, condition: str) -> list[tuple[str, str]]:
    """Every Progressing condition that was seen on the way."""
    seen: list[tuple[str, str]] = []

    def done() -> bool:
        seen.append(world.kube.condition(kind, name, "Progressing"))
        return world.holds(kind, name, condition)

    world.run_until(done)
    return seen


def driver(world: World, operation: str = "Load") -> dict[str, Any]:
    return next(world.kube.find("Pod", operation=operation))


def hold_pods(world: World, operation: str) -> None:
    world.kubelet.holds = lambda pod: pod["metadata"]["labels"]["skipstone.dev/operation"] == operation


def refuse_all(world: World) -> None:
    refusal = Refused(status=403, reason="Forbidden", message="being terminated", causes=("NamespaceTerminating",))
    world.kube.refuse = lambda _obj: refusal


def is_operation(obj: dict[str, Any], operation: str) -> bool:
    return bool(obj["metadata"]["labels"]["skipstone.dev/operation"] == operation)
