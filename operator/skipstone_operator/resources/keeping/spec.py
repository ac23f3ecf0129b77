"""``spec.warmDrivers`` of a Warehouse: pods that take its small runs one after the other.

Imported by the Warehouse, by reconcilers and by the CRD generator. Data only.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar

from skipstone_operator.resources.rules.markers import Doc, Rule

MAX_DRIVERS = 64


@dataclass(frozen=True, kw_only=True)
class WarmDriversSpec:
    """How many drivers are kept, and for how long."""

    RULES: ClassVar[tuple[Rule, ...]] = (
        Rule(
            holds=lambda spec: spec.min <= spec.max,
            # The API server judges this object before its defaults are filled in.
            rule="!has(self.min) || !has(self.max) || self.min <= self.max",
            message="warmDrivers.max must be at least warmDrivers.min: raise max or lower min",
            field_path=".max",
        ),
    )

    min: Annotated[
        int, Doc("Drivers that are kept all the time; 0 starts the first one when a job runs.", minimum=0, maximum=64)
    ] = 1
    max: Annotated[
        int, Doc("The maximum number of kept drivers, while several jobs run at once.", minimum=1, maximum=MAX_DRIVERS)
    ] = 1
    idle_seconds: Annotated[
        int,
        Doc("How long a driver beyond min is kept without a run.", minimum=10, maximum=86_400),
    ] = 300


#: Rules over the spec of a Warehouse: which runs a kept driver can take.
WARM_DRIVERS_RULES = (
    Rule(
        holds=lambda spec: spec.warm_drivers is None or spec.spark.executor.instances == 0,
        rule="!has(self.warmDrivers) || !has(self.spark) || !has(self.spark.executor) || "
        "!has(self.spark.executor.instances) || self.spark.executor.instances == 0",
        message="warmDrivers needs spark.executor.instances 0, since a kept driver has no executors: set 0, or remove "
        "warmDrivers",
        field_path=".warmDrivers",
    ),
)
