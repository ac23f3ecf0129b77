"""Labels by which the operator finds the children of its resources.

Manifests put them on, worlds read them off, reconcilers and the watch select by them. Names only.
"""

from __future__ import annotations

from skipstone_core import ids

DOMAIN = "skipstone.dev"
MANAGED_BY_LABEL = "app.kubernetes.io/managed-by"
MANAGED_BY = "skipstone-operator"
OPERATION_LABEL = f"{DOMAIN}/operation"
RUN_ID_LABEL = f"{DOMAIN}/run-id"
OWNER_KIND_LABEL = f"{DOMAIN}/owner-kind"
OWNER_UID_LABEL = f"{DOMAIN}/owner-uid"
TABLE_UID_LABEL = f"{DOMAIN}/table-uid"
WAREHOUSE_UID_LABEL = ids.WAREHOUSE_UID_LABEL
ROLE_LABEL = "spark-role"
APP_SELECTOR_LABEL = "spark-app-selector"
DRIVER_ROLE = "driver"
EXECUTOR_ROLE = "executor"
DRIVER_CONTAINER = "spark-kubernetes-driver"
SCHEDULE_LABEL = f"{DOMAIN}/schedule"
SCHEDULED_TIME_ANNOTATION = f"{DOMAIN}/scheduled-time"
WAREHOUSE_LABEL = f"{DOMAIN}/warehouse"
#: Of a run that was assigned: the name of the kept driver's pod.
KEPT_DRIVER_LABEL = f"{DOMAIN}/kept-driver"
#: Of a run of a Warehouse with kept drivers that has a pod of its own: why.
COLD_START_ANNOTATION = f"{DOMAIN}/cold-start"
#: Hash over a manifest as it was written last: what is declared otherwise is written again.
MANIFEST_HASH_ANNOTATION = f"{DOMAIN}/manifest-hash"
FINALIZER = f"{DOMAIN}/reclaim"
