"""Settings of the operator from its environment, checked before anything starts.

Read once by ``__main__``. A bad value is one sentence that names the variable and the way out.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from skipstone_core.errors import SkipstoneError

NAMESPACE = r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?"
SUBDOMAIN = r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?"
LOG_LEVELS = ("debug", "info", "warning", "error")
PULL_POLICIES = ("Always", "IfNotPresent", "Never")
SWITCH = ("on", "off")
MAX_WORKERS = 256


class BadSetting(SkipstoneError):
    """A variable of the environment cannot be used; the text names it."""


@dataclass(frozen=True, kw_only=True)
class Settings:
    """How this operator runs. ``identity`` tells it from others in the Lease; a port 0: nothing is served there.

    ``executors``: whether runs may have executor pods; else everything runs in the driver. ``keeps_drivers``: whether
    drivers can be kept.
    """

    namespaces: tuple[str, ...]
    operator_namespace: str
    spark_image: str
    image_pull_policy: str = "IfNotPresent"
    image_pull_secrets: tuple[str, ...] = ()
    service_account: str = "skipstone-spark"
    lease_name: str = "skipstone-operator"
    log_level: str = "info"
    workers: int = 8
    executors: bool = True
    keeps_drivers: bool = True
    identity: str = ""
    probe_port: int = 8080
    metrics_port: int = 8081
    dashboard_port: int = 0


def load_settings(environment: Mapping[str, str]) -> Settings:
    """Settings from variables ``SKIPSTONE_…``; empty ones count as absent. Raises BadSetting."""
    read = _Reader(environment)
    return Settings(
        namespaces=read.names("NAMESPACES", NAMESPACE, "a comma-separated list of namespaces to watch"),
        operator_namespace=read.name("OPERATOR_NAMESPACE", NAMESPACE, default=None),
        spark_image=read.text("SPARK_IMAGE", default=None),
        image_pull_policy=read.choice("IMAGE_PULL_POLICY", PULL_POLICIES, default="IfNotPresent"),
        image_pull_secrets=read.names("IMAGE_PULL_SECRETS", SUBDOMAIN, "a comma-separated list of Secrets", default=""),
        service_account=read.name("SERVICE_ACCOUNT", SUBDOMAIN, default="skipstone-spark"),
        lease_name=read.name("LEASE_NAME", SUBDOMAIN, default="skipstone-operator"),
        log_level=read.choice("LOG_LEVEL", LOG_LEVELS, default="info"),
        workers=read.number("WORKERS", 1, MAX_WORKERS, default=8),
        executors=read.choice("EXECUTORS", SWITCH, default="on") == "on",
        keeps_drivers=read.choice("KEEPS_DRIVERS", SWITCH, default="on") == "on",
        identity=environment.get("POD_NAME", ""),
        probe_port=read.number("PROBE_PORT", 0, 65535, default=8080),
        metrics_port=read.number("METRICS_PORT", 0, 65535, default=8081),
        dashboard_port=read.number("DASHBOARD_PORT", 0, 65535, default=0),
    )


@dataclass(frozen=True)
class _Reader:
    environment: Mapping[str, str]

    def text(self, name: str, default: str | None) -> str:
        value = self.environment.get(f"SKIPSTONE_{name}", "").strip() or default
        if value is None:
            raise BadSetting(f"SKIPSTONE_{name} is not set: set it (the Helm chart does so by itself)")
        return value

    def name(self, name: str, pattern: str, default: str | None) -> str:
        value = self.text(name, default)
        if not re.fullmatch(pattern, value):
            raise BadSetting(f"SKIPSTONE_{name}: {value!r} is no valid name: use lower-case letters, digits and '-'")
        return value

    def names(self, name: str, pattern: str, what: str, default: str | None = None) -> tuple[str, ...]:
        values = tuple(part.strip() for part in self.text(name, default).split(",") if part.strip())
        if default is None and not values:
            raise BadSetting(f"SKIPSTONE_{name} is empty: give {what}")
        for part in values:
            if not re.fullmatch(pattern, part):
                raise BadSetting(f"SKIPSTONE_{name}: {part!r} is no valid name: give {what}")
        return tuple(dict.fromkeys(values))

    def choice(self, name: str, allowed: tuple[str, ...], default: str) -> str:
        value = self.text(name, default)
        by_lower = {value.lower(): value for value in allowed}
        if value.lower() not in by_lower:
            raise BadSetting(f"SKIPSTONE_{name}: {value!r} is none of {', '.join(allowed)}: choose one of them")
        return by_lower[value.lower()]

    def number(self, name: str, low: int, high: int, default: int) -> int:
        value = self.text(name, str(default))
        if not re.fullmatch(r"[0-9]{1,9}", value) or not low <= int(value) <= high:
            raise BadSetting(f"SKIPSTONE_{name}: {value!r} is not a whole number from {low} to {high}: correct it")
        return int(value)
