"""Starts the server: settings, catalog, threads, signals.

Called by ``__main__`` and the application. The only place that opens the catalog and reads the environment.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
import sys
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Final

import uvicorn
from pyiceberg.catalog import Catalog
from skipstone_core import signing
from skipstone_core.catalog_uris import sends_plaintext
from skipstone_core.contract.planning import (
    PLANNING_PORT,
    PORT_VARIABLE,
    SEAL_VARIABLE,
    SETTINGS_VARIABLE,
    TOKENS_VARIABLE,
    PlanningSettings,
    PlanningVerify,
)
from skipstone_core.contract.reports import EXIT_BAD_SPEC
from skipstone_core.contract.requests import CatalogType
from skipstone_core.errors import BadSpec, ContractViolation, DependencyUnavailable
from skipstone_core.reasons import Reason

from skipstone.scrubbing import ScrubbingFormatter, keep_secret
from skipstone.serving.app import CatalogAnswers, PlanningApp
from skipstone.serving.front.answering import FrontAnswers
from skipstone.serving.front.bearer import SHORTEST_TOKEN
from skipstone.serving.front.catalog import CatalogFront
from skipstone.serving.front.reading import ReadingSqlCatalog
from skipstone.serving.health import Readiness
from skipstone.serving.measures import PlanningMeasures
from skipstone.serving.pages import PageSeal
from skipstone.serving.planning import ScanPlanner
from skipstone.serving.transport.accesslog import AccessLog, access_log
from skipstone.serving.transport.connections import TimedProtocol
from skipstone.serving.upstream.answering import UpstreamAnswers, require_answer
from skipstone.serving.upstream.client import UpstreamClient
from skipstone.serving.upstream.loading import UpstreamTables
from skipstone.serving.verifying import PlanVerifier
from skipstone.serving.workers import PlanWorkers
from skipstone.tables.catalogs import catalog_answers, open_known_catalog

#: How long requests are still taken after the order to end: until everybody knows that this replica is not ready.
DRAIN_SECONDS: Final = 2.0
#: Threads that answer from an Sql catalog, beside those that plan.
_READERS: Final = 8
#: Connections at once; one more gets 503.
_CONNECTIONS: Final = 2000
_KEEP_ALIVE_SECONDS: Final = 75
#: Between two attempts to open the catalog: twice as long each time, until ...
_OPEN_AGAIN_SECONDS: Final = 0.5
_OPEN_LATEST_SECONDS: Final = 15.0
_log = logging.getLogger(__name__)


def run_server(environment: Mapping[str, str]) -> int:
    """Serve until the process is told to end; returns its exit code: EXIT_BAD_SPEC for settings that cannot work."""
    _start_logging()
    try:
        serving = Serving.of(environment)
    except (BadSpec, ContractViolation, OSError, ValueError) as error:
        _log.error("the server cannot start: %s", error)
        return EXIT_BAD_SPEC
    return asyncio.run(serving.serve())


def _start_logging() -> None:
    handler = logging.StreamHandler()
    handler.setFormatter(ScrubbingFormatter("%(asctime)s %(levelname)s %(name)s %(message)s"))
    logging.basicConfig(level=logging.INFO, handlers=[handler])
    lines = logging.StreamHandler(sys.stdout)
    lines.setFormatter(ScrubbingFormatter("%(message)s"))
    access_log.addHandler(lines)
    access_log.propagate = False
    # Both say which address or file they ask for, which tells names of tables.
    for name in ("pyiceberg", "httpx", "httpcore"):
        logging.getLogger(name).setLevel(logging.WARNING)
    logging.captureWarnings(capture=True)


@dataclass
class Serving:
    """One server. ``tokens``: open the front of an Sql catalog; ``port``: 0 for any that is free."""

    settings: PlanningSettings
    tokens: tuple[str, ...] = field(repr=False)
    seal: bytes = field(repr=False)
    port: int = PLANNING_PORT
    exit_code: int = 0
    _server: uvicorn.Server | None = None

    @staticmethod
    def of(environment: Mapping[str, str]) -> Serving:
        """What ``environment`` asks for.

        Raises BadSpec for settings that cannot work, ContractViolation, OSError and ValueError for a file
        that cannot be read.
        """
        path = environment.get(SETTINGS_VARIABLE)
        if not path:
            raise ContractViolation(f"{SETTINGS_VARIABLE} is not set: name the file with the settings of the server")
        settings = PlanningSettings.from_json(Path(path).read_text())
        tokens = tuple(environment.get(TOKENS_VARIABLE, "").split())
        _require_safe(settings, tokens)
        given = environment.get(SEAL_VARIABLE, "")
        keep_secret(*tokens, *filter(None, [given]))
        seal = given.encode() or _derived_seal(settings)
        return Serving(settings, tokens, seal, int(environment.get(PORT_VARIABLE) or PLANNING_PORT))

    async def serve(self) -> int:
        """Serve until a signal comes; plans that are running then are finished."""
        settings = self.settings
        workers = PlanWorkers(settings.concurrent_plans, settings.plan_timeout_seconds)
        measures = PlanningMeasures(lambda: workers.pending, lambda: readiness.is_ready)
        verifier = PlanVerifier(measures) if settings.verify is PlanningVerify.SAMPLE else None
        planner = ScanPlanner(settings, PageSeal(self.seal), measures, verifier)
        backend = _backend(self, measures)
        readiness = Readiness(backend.ask)
        app = PlanningApp(planner, workers, measures, readiness)
        self._server = _Server(_config(self, app), readiness)
        home = settings.warehouse
        _log.info("planning for the Warehouse %s (%s catalog, mode %s)", home.name, home.catalog.type, settings.mode)
        watching = asyncio.create_task(self._watch(app, backend))
        try:
            await self._server.serve()
        finally:
            watching.cancel()
            with suppress(asyncio.CancelledError):
                await watching
            await asyncio.to_thread(workers.close)
            if verifier is not None:
                await asyncio.to_thread(verifier.close)
            await backend.close()
        return self.exit_code

    def stop(self) -> None:
        """Take no more requests and end when those that are running are answered; from any thread."""
        if self._server is not None:
            self._server.should_exit = True

    async def _watch(self, app: PlanningApp, backend: Backend) -> None:
        """Open the catalog as soon as it answers, then look whether it still does."""
        pause = _OPEN_AGAIN_SECONDS
        while app.answers is None:
            try:
                app.answers = await asyncio.to_thread(backend.open)
            except DependencyUnavailable as error:
                _log.warning("the catalog cannot be opened yet: %s", error)
                await asyncio.sleep(pause)
                pause = min(2 * pause, _OPEN_LATEST_SECONDS)
            except Exception:  # noqa: BLE001 - the server ends by it, whatever it is
                _log.exception("the server cannot open its catalog")
                self.exit_code = EXIT_BAD_SPEC
                self.stop()
                return
        await app.readiness.watch()


def _require_safe(settings: PlanningSettings, tokens: tuple[str, ...]) -> None:
    """Raise BadSpec for settings by which tokens would leak or nobody would be asked for one."""
    catalog = settings.warehouse.catalog
    if catalog.type is CatalogType.SQL:
        if not tokens:
            message = "an Sql catalog needs tokens that open its front: name a Secret with one or more, between blanks."
            raise BadSpec(Reason.INVALID_SPEC, message, field="spec.planning.tokensSecretRef")
        if not all(len(token) >= SHORTEST_TOKEN and token.isascii() for token in tokens):
            message = (
                f"each token in the Secret needs {SHORTEST_TOKEN} or more ASCII characters; blanks separate tokens: "
                "make them by openssl rand -hex 32."
            )
            raise BadSpec(Reason.INVALID_SPEC, message, field="spec.planning.tokensSecretRef")
        return
    if signing.is_signed(catalog.properties):
        message = "a catalog that takes signed requests only cannot be served: signatures are for one address."
        raise BadSpec(Reason.INVALID_SPEC, message, field="spec.planning")
    if not settings.allow_plaintext_tokens and sends_plaintext(catalog.uri, {}):
        message = (
            "callers' tokens would go to the catalog without encryption: use https:// in spec.catalog.uri, or set "
            "spec.planning.allowPlaintextTokens where nobody else is on the network."
        )
        raise BadSpec(Reason.INVALID_SPEC, message, field="spec.planning")


def _derived_seal(settings: PlanningSettings) -> bytes:
    """A key that all replicas derive alike. It keeps no secret: a token gives no right that its caller lacks."""
    catalog = settings.warehouse.catalog
    named = json.dumps([settings.warehouse.name, catalog.name, catalog.uri])
    return hashlib.sha256(f"skipstone-planning {named}".encode()).digest()


@dataclass(frozen=True)
class Backend:
    """What is different for each type of catalog: ``open`` waits, ``ask`` raises when the catalog does not answer."""

    open: Callable[[], CatalogAnswers]
    ask: Callable[[], Awaitable[None]]
    close: Callable[[], Awaitable[None]]


def _backend(serving: Serving, measures: PlanningMeasures) -> Backend:
    is_rest = serving.settings.warehouse.catalog.type is CatalogType.REST
    return _rest_backend(serving, measures) if is_rest else _sql_backend(serving)


def _rest_backend(serving: Serving, measures: PlanningMeasures) -> Backend:
    settings = serving.settings
    reference = settings.warehouse.catalog
    client = UpstreamClient(reference.uri, settings.upstream_timeout_seconds, measures)

    def opened() -> CatalogAnswers:
        tables = UpstreamTables(client, open_known_catalog(settings.warehouse), measures)
        return UpstreamAnswers(client, tables, settings.mode)

    async def ask() -> None:
        await require_answer(client, reference.properties.get("warehouse", ""))

    return Backend(opened, ask, client.close)


def _sql_backend(serving: Serving) -> Backend:
    settings = serving.settings
    readers = PlanWorkers(_READERS, settings.upstream_timeout_seconds)
    catalogs: list[Catalog] = []

    def opened() -> CatalogAnswers:
        catalogs[:] = [open_known_catalog(settings.warehouse, ReadingSqlCatalog)]
        return FrontAnswers(CatalogFront(settings, catalogs[0]), serving.tokens, readers)

    def listed() -> None:
        with catalog_answers(catalogs[0].name):
            catalogs[0].list_namespaces()

    async def ask() -> None:
        async with readers.admitted():
            await readers.run(listed)

    async def close() -> None:
        await asyncio.to_thread(readers.close)

    return Backend(opened, ask, close)


def _config(serving: Serving, app: PlanningApp) -> uvicorn.Config:
    return uvicorn.Config(
        AccessLog(app),
        host="0.0.0.0",
        port=serving.port,
        http=TimedProtocol,
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        limit_concurrency=_CONNECTIONS,
        timeout_keep_alive=_KEEP_ALIVE_SECONDS,
        timeout_graceful_shutdown=serving.settings.plan_timeout_seconds,
    )


class _Server(uvicorn.Server):
    """Ends in two steps: first it says that it is not ready, a moment later it takes no more requests."""

    def __init__(self, config: uvicorn.Config, readiness: Readiness) -> None:
        super().__init__(config)
        self._readiness = readiness

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """A second signal ends at once."""
        if self._readiness.is_ending:
            self.force_exit = self.should_exit = True
            return
        self._readiness.is_ending = True
        asyncio.get_running_loop().call_soon_threadsafe(self._drain)

    def _drain(self) -> None:
        _log.info("the server ends: it refuses new requests in %g s and finishes those that are running", DRAIN_SECONDS)
        asyncio.get_running_loop().call_later(DRAIN_SECONDS, self._close)

    def _close(self) -> None:
        self.should_exit = True
