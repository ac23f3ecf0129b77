"""Events about resources, aggregated and rate limited: implements ``ports.Events``.

An Event that repeats is counted on the first one instead of posted again; an object that changes its mind too often
falls silent for a while. Losing an Event is allowed, so nothing here raises.
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from dataclasses import dataclass, field
from datetime import datetime

from skipstone_core.ids import bounded_name, short_hash

from skipstone_operator.adapters.connection import MERGE_PATCH, ApiFault, Connection
from skipstone_operator.adapters.kube import RESOURCES, path_of
from skipstone_operator.ports import Clock, EventRecord, JsonObject

logger = logging.getLogger(__name__)

CONTROLLER = "skipstone.dev/operator"
MICRO_TIME = "%Y-%m-%dT%H:%M:%S.%fZ"
MAX_NOTE = 1024
#: Series end when nothing was added for this long; the API server forgets Events after an hour.
SERIES_SECONDS = 1800.0
#: Per object: so many Events at once, then one per interval.
BURST = 25.0
REFILL_SECONDS = 60.0
REMEMBERED = 4096


@dataclass
class _Series:
    name: str
    count: int
    last: datetime


@dataclass
class _Budget:
    tokens: float
    filled: datetime


@dataclass
class KubeEvents:
    """Implements ``ports.Events``. ``instance`` tells this operator from others."""

    connection: Connection
    clock: Clock
    instance: str
    _series: OrderedDict[str, _Series] = field(default_factory=OrderedDict)
    _budgets: OrderedDict[str, _Budget] = field(default_factory=OrderedDict)

    async def publish(self, record: EventRecord) -> None:
        """Post the Event or count it on the one before it; faults are logged."""
        now = self.clock.now()
        if not self._may_post(record.regarding.get("uid", ""), now):
            logger.debug("event dropped: too many", extra={"reason": record.reason.value})
            return
        try:
            await self._publish(record, now)
        except ApiFault as error:
            logger.warning("event not posted: %s", error)

    async def _publish(self, record: EventRecord, now: datetime) -> None:
        key = short_hash(record.regarding.get("uid", ""), record.type, record.reason, record.note)
        series = self._series.get(key)
        if series and (now - series.last).total_seconds() < SERIES_SECONDS and await self._count(record, series, now):
            self._series.move_to_end(key)
            return
        name = f"{bounded_name(record.regarding['name'], 200)}.{short_hash(key, now.isoformat(), self.instance)}"
        if await self._post(record, name, now):
            self._series[key] = _Series(name, 1, now)
            _trim(self._series)

    async def _post(self, record: EventRecord, name: str, now: datetime) -> bool:
        path = path_of("Event", record.regarding["namespace"])
        answer = await self.connection.request("POST", path, body=self._manifest(record, name, now))
        if not answer.ok and "NamespaceTerminating" not in str(answer.body.get("details", "")):
            logger.warning("event refused: %s", answer.body.get("message", answer.status))
        return answer.ok

    async def _count(self, record: EventRecord, series: _Series, now: datetime) -> bool:
        body = {"series": {"count": series.count + 1, "lastObservedTime": now.strftime(MICRO_TIME)}}
        path = path_of("Event", record.regarding["namespace"], series.name)
        answer = await self.connection.request("PATCH", path, body=body, headers={"Content-Type": MERGE_PATCH})
        if answer.ok:
            series.count, series.last = series.count + 1, now
        return answer.ok

    def _manifest(self, record: EventRecord, name: str, now: datetime) -> JsonObject:
        return {
            "apiVersion": RESOURCES["Event"][0],
            "kind": "Event",
            "metadata": {"name": name, "namespace": record.regarding["namespace"]},
            "regarding": dict(record.regarding),
            "type": record.type.value,
            "reason": record.reason.value,
            "note": record.note[:MAX_NOTE],
            "action": "Reconcile",
            "eventTime": now.strftime(MICRO_TIME),
            "reportingController": CONTROLLER,
            "reportingInstance": bounded_name(self.instance, 128),
        }

    def _may_post(self, uid: str, now: datetime) -> bool:
        budget = self._budgets.setdefault(uid, _Budget(BURST, now))
        self._budgets.move_to_end(uid)
        _trim(self._budgets)
        refill = (now - budget.filled).total_seconds() / REFILL_SECONDS
        budget.tokens, budget.filled = min(BURST, budget.tokens + refill), now
        if budget.tokens < 1:
            return False
        budget.tokens -= 1
        return True


def _trim(memory: OrderedDict[str, _Series] | OrderedDict[str, _Budget]) -> None:
    while len(memory) > REMEMBERED:
        memory.popitem(last=False)
