"""The watch: kopf turns changes of the cluster into calls, these fill the cache and put keys into the queue.

Wired by ``__main__``. Handlers decide nothing, write nothing and cannot fail; kopf keeps no state of ours, sets no
finalizer and posts no Event.
"""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import kopf

from skipstone_operator.adapters.cached import FOREIGN
from skipstone_operator.credentials import Credentials
from skipstone_operator.resources.kinds import GROUP, KINDS, VERSION

#: A service account's token is replaced well before it ends; so are the credentials that kopf holds.
CREDENTIALS_LIFETIME = timedelta(minutes=10)


@dataclass(frozen=True, kw_only=True)
class Watch:
    """What the handlers call. ``problem`` answers a sentence when the operator is not healthy.

    ``listed`` says that a watch begins with a LIST, as it does after a gap: that tells what exists, not what vanished.
    """

    listed: Callable[[], None]
    changed: Callable[[Mapping[str, Any]], None]
    removed: Callable[[Mapping[str, Any]], None]
    credentials: Callable[[], Awaitable[Credentials]]
    problem: Callable[[], str | None]


async def run_watch(watch: Watch, namespaces: tuple[str, ...], probe_port: int) -> None:
    """Watch until SIGTERM (returns). Raises when a watch stream cannot be kept up. ``probe_port`` 0: no probe."""
    # Without it kopf asks for the name of its user, and containers run as users that have none. It has no peers here.
    os.environ.setdefault("POD_ID", "skipstone-operator")
    await kopf.operator(
        registry=build_registry(watch),
        settings=kopf.OperatorSettings(),
        namespaces=namespaces,
        standalone=True,
        liveness_endpoint=f"http://0.0.0.0:{probe_port}/healthz" if probe_port else None,
    )


def build_registry(watch: Watch) -> kopf.OperatorRegistry:
    """All handlers, in a registry of their own."""
    registry = kopf.OperatorRegistry()
    kopf.on.startup(id="configure", registry=registry)(configure)
    _add_login(registry, watch)
    _add_probe(registry, watch)
    _add_events(registry, watch)
    return registry


async def configure(settings: kopf.OperatorSettings, **_: Any) -> None:
    """Settings by which a stalled or refused watch ends the process instead of serving nothing in silence."""
    settings.peering.standalone = True
    settings.scanning.disabled = True
    settings.posting.enabled = False
    settings.watching.inactivity_timeout = 70
    settings.watching.server_timeout = 290
    settings.watching.client_timeout = 300
    settings.watching.connect_timeout = 10
    for foreign in FOREIGN.values():
        if foreign.labels:
            wanted = ",".join(f"{name}={value}" for name, value in foreign.labels.items())
            settings.watching.label_selectors[foreign.group, foreign.version, foreign.plural] = wanted
    settings.networking.connect_timeout = 5
    settings.networking.request_timeout = 30
    settings.networking.error_backoffs = [1, 2, 3, 5, 8, 13, 21, 30, 30, 30, 30, 30]
    settings.networking.enforce_retry_after = True
    settings.queueing.worker_limit = None
    settings.queueing.exit_timeout = 2
    settings.execution.max_workers = 8
    settings.process.ultimate_exiting_timeout = 25
    settings.persistence.finalizer = f"{GROUP}/unused"
    settings.persistence.progress_storage = kopf.AnnotationsProgressStorage(prefix=GROUP)


def _add_login(registry: kopf.OperatorRegistry, watch: Watch) -> None:
    @kopf.on.login(id="login", registry=registry)
    async def login(**_: Any) -> kopf.ConnectionInfo:
        credentials = await watch.credentials()
        return kopf.ConnectionInfo(
            server=credentials.server,
            ca_path=credentials.ca_path,
            insecure=credentials.insecure,
            token=credentials.token,
            certificate_path=credentials.certificate_path,
            private_key_path=credentials.key_path,
            expiration=datetime.now(UTC) + CREDENTIALS_LIFETIME if credentials.token else None,
        )


def _add_probe(registry: kopf.OperatorRegistry, watch: Watch) -> None:
    @kopf.on.probe(id="operator", registry=registry, errors=kopf.ErrorsMode.PERMANENT)
    async def healthy(**_: Any) -> str:
        if problem := watch.problem():
            raise kopf.PermanentError(problem)
        return "ok"


def _add_events(registry: kopf.OperatorRegistry, watch: Watch) -> None:
    async def seen(event: Mapping[str, Any], **_: Any) -> None:
        deliver = watch.removed if event["type"] == "DELETED" else watch.changed
        deliver(event["object"])
        if event["type"] is None:
            watch.listed()

    for kind in KINDS.values():
        kopf.on.event(GROUP, VERSION, kind.plural, id=f"{kind.singular}-seen", registry=registry)(seen)
    for name, foreign in FOREIGN.items():
        place = (foreign.group, foreign.version, foreign.plural)
        kopf.on.event(*place, id=f"{name.lower()}-seen", registry=registry)(seen)
