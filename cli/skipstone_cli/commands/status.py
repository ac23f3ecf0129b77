"""``skipstone status``: all objects as a tree, or one with what leads to it and what it holds."""

from __future__ import annotations

from skipstone_cli.cluster.api import EVERYWHERE, Api
from skipstone_cli.commands.gathering import gather
from skipstone_cli.errors import CliError, ExitCode, NotFound
from skipstone_cli.kinds import Target
from skipstone_cli.output.screen import Screen
from skipstone_cli.output.trees import tree_json, tree_lines
from skipstone_cli.views.tree import build_tree, narrow

DOCUMENT = {"apiVersion": "cli.skipstone.dev/v1", "kind": "Status"}


def run_status(
    api: Api, screen: Screen, target: Target | None, *, every_job: bool = False, as_json: bool = False
) -> ExitCode:
    """Show the tree. Raises CliError."""
    everywhere = api.namespace == EVERYWHERE
    if target is not None and everywhere:
        raise CliError("-A shows all namespaces: name the namespace with -n to show one object")
    gathered = gather(api, target)
    unlisted = tuple(gathered.lacking)
    tree = build_tree(gathered.objects, every_job=every_job, target=target, unlisted=unlisted)
    if target is not None:
        tree = narrow(tree, target, api.namespace)
        if not tree:
            raise NotFound(f"{target} was deleted while it was read")
    rights = [str(refusal.right) for refusal in gathered.lacking.values()]
    if as_json:
        screen.show_json({**DOCUMENT, "items": tree_json(tree), "missingRights": rights})
    else:
        screen.show(tree_lines(tree, namespaces=everywhere))
        if not tree and not rights:
            where = "any namespace" if everywhere else f"namespace {api.namespace}"
            screen.note(f"there is no resource of Skipstone in {where}")
    for refusal in gathered.lacking.values():
        screen.note(f"the tree is not whole: {refusal}")
    return ExitCode.REFUSED if rights else ExitCode.FINE
