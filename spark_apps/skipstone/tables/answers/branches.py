"""The branch of a table that a run works on: its head stands for that of the table.

Everything that asks a ``Table`` for its head, its files or its history is then told of the branch. Must not commit.
"""

from __future__ import annotations

from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.refs import MAIN_BRANCH, SnapshotRef, SnapshotRefType
from skipstone_core.contract.branches import BranchSpec, MissingBranch
from skipstone_core.errors import BadSpec
from skipstone_core.reasons import Reason

_FIELD = "spec.branch.name"


class BranchTable(Table):
    """A table in memory whose current snapshot is the head of a branch, and in all else the table itself.

    ``branch``: its name. ``main``: the table with the head of main. ``is_new``: the table does not have the branch; it
    begins at the head of main, and the commit creates it.
    """

    def __init__(self, main: Table, metadata: TableMetadata, branch: str, *, is_new: bool) -> None:
        """Made by ``on_branch``; ``metadata`` names the head of the branch."""
        super().__init__(main.name(), metadata, main.metadata_location, main.io, main.catalog, main.config)
        self.main, self.branch, self.is_new = main, branch, is_new


def on_branch(table: Table, spec: BranchSpec) -> BranchTable:
    """``table`` with the head of a branch.

    Raises BadSpec (BRANCH_NOT_FOUND) if it does not have the branch and ``spec`` does not let a commit create it, or if
    the name is that of a tag.
    """
    metadata, name = table.metadata, ".".join(table.name())
    ref = metadata.refs.get(spec.name)
    if ref is not None and ref.snapshot_ref_type is not SnapshotRefType.BRANCH:
        message = f"{spec.name!r} is a tag of {name}, which no run can write: name a branch"
        raise BadSpec(Reason.BRANCH_NOT_FOUND, message, field=_FIELD)
    if ref is not None:
        seen = metadata.model_copy(update={"current_snapshot_id": ref.snapshot_id})
        return BranchTable(table, seen, spec.name, is_new=False)
    if spec.if_missing is MissingBranch.REFUSE:
        message = f"{name} does not have the branch {spec.name!r}, it has {_known(metadata)}"
        way_out = "create the branch, or set branch.ifMissing to Create, with which it begins at the head of main"
        raise BadSpec(Reason.BRANCH_NOT_FOUND, f"{message}: {way_out}", field=_FIELD)
    if metadata.current_snapshot_id is None:
        message = f"{name} has no snapshot at which the branch {spec.name!r} could begin"
        raise BadSpec(Reason.BRANCH_NOT_FOUND, f"{message}: load rows into the branch main first", field=_FIELD)
    head = metadata.current_snapshot_id
    begun = SnapshotRef.model_validate({"snapshot-id": head, "type": SnapshotRefType.BRANCH})
    seen = metadata.model_copy(update={"refs": {**metadata.refs, spec.name: begun}})
    return BranchTable(table, seen, spec.name, is_new=True)


def _known(metadata: TableMetadata) -> str:
    kinds = {name: ref.snapshot_ref_type for name, ref in metadata.refs.items()}
    return ", ".join(sorted(name for name, kind in kinds.items() if kind is SnapshotRefType.BRANCH)) or "none"


def main_of(table: Table) -> Table:
    """``table`` with the head of main."""
    return table.main if isinstance(table, BranchTable) else table


def branch_of(table: Table) -> str:
    """The name of the branch whose head ``table`` shows."""
    return table.branch if isinstance(table, BranchTable) else MAIN_BRANCH
