"""Manifests of one run: a ConfigMap and a Pod, as plain dicts.

Reconcilers call ``build_run``; everything here is pure: no API, clock, randomness or logging.
"""

from __future__ import annotations

from skipstone_operator.manifests.mergejobs import build_merge_job
from skipstone_operator.manifests.names import conf_map_name, driver_pod_name, run_labels
from skipstone_operator.manifests.places import find_claims, find_variables
from skipstone_operator.manifests.run import Owner, RunManifest, build_run
from skipstone_operator.manifests.shape import PodPlace
from skipstone_operator.manifests.spark import check_spark
from skipstone_operator.manifests.templates import check_pod_template

__all__ = [
    "Owner",
    "PodPlace",
    "RunManifest",
    "build_merge_job",
    "build_run",
    "check_pod_template",
    "check_spark",
    "conf_map_name",
    "driver_pod_name",
    "find_claims",
    "find_variables",
    "run_labels",
]
