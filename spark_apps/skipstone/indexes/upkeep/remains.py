"""Deletes the files of an index table that killed runs wrote and never committed: they are ours, and need no policy.

Called by whoever commits to an index, after its commits; once a day it lists the files. Looks at data files that only
our runs name so. Must not fail a run.
"""

from __future__ import annotations

import logging

from pyiceberg.catalog import Catalog
from skipstone_core.contract.requests import WarehouseRef
from skipstone_core.errors import BadSpec
from skipstone_core.ids import is_data_file_of_run
from skipstone_core.maintenance.policies import OrphanFilesAction, OrphanFilesPolicy

from skipstone.indexes.tables import REMAINS_PROPERTY, IndexTable, reopen_index
from skipstone.tables.committing.commits import CommitPorts
from skipstone.tables.upkeep.orphans import OrphanSite, Spared, delete_remains

#: How long a run may take from the first file that it writes to the commit that names it.
AGE_SECONDS = 3 * 24 * 3600
#: How long the files of an index are not listed again.
EVERY_SECONDS = 24 * 3600
_POLICY = OrphanFilesPolicy(action=OrphanFilesAction.DELETE, older_than_seconds=AGE_SECONDS)
_log = logging.getLogger(__name__)


def clear_remains(
    catalog: Catalog, warehouse: WarehouseRef, index: IndexTable, run_id: str, ports: CommitPorts | None = None
) -> int:
    """How many files were deleted; most calls list nothing. What fails is logged, and left to the next call.

    A file goes if it has not changed for AGE_SECONDS by the storage's clock, its name begins with that of another run,
    no retained snapshot of the index holds it, and no other table of the catalog has a file of its name.
    """
    used = ports or CommitPorts()
    if not _is_due(index, used.now_ms()):
        return 0
    site = OrphanSite(
        catalog=catalog, warehouse=warehouse, ref=index.ref(), spared=Spared(run_id=run_id), now_ms=used.now_ms
    )
    try:
        deleted = _deleted(site, index)
        with reopen_index(catalog, index).table.transaction() as change:
            change.set_properties({REMAINS_PROPERTY: str(used.now_ms())})
    except Exception:  # noqa: BLE001 - what was committed stands; the next call tries again
        _log.warning("files of killed runs stay in the index %s for now", index.name, exc_info=True)
        return 0
    return deleted


def _is_due(index: IndexTable, now_ms: int) -> bool:
    """Return whether the files were not listed for a day; of an index that has no such record they never were."""
    looked = index.table.properties.get(REMAINS_PROPERTY, "")
    return not looked.isdecimal() or now_ms - int(looked) >= EVERY_SECONDS * 1000


def _deleted(site: OrphanSite, index: IndexTable) -> int:
    try:
        deleted = delete_remains(site, _POLICY, is_data_file_of_run)
    except BadSpec as error:  # its folder is not below the Warehouse's root, whose storage lists files
        _log.info("files of killed runs of the index %s are not looked for: %s", index.name, error)
        return 0
    if deleted:
        _log.info("%d files of killed runs of the index %s are deleted", deleted, index.name)
    return deleted
