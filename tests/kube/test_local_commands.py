"""What ``skipstone local get``, ``apply``, ``describe`` and ``delete`` print, beside what kubectl prints."""

from __future__ import annotations

import io
import re
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

import pytest
import yaml
from kubernetes.client import CoreV1Api, CustomObjectsApi
from rich.console import Console
from skipstone_cli.errors import CliError, ExitCode, NotFound, OutcomeFailed, Refused
from skipstone_cli.output.screen import Screen
from skipstone_local.client.objects import Objects
from skipstone_local.client.opening import open_kubeconfig
from skipstone_local.commands.applying import Sources, run_apply
from skipstone_local.commands.deleting import DeleteQuery, run_delete
from skipstone_local.commands.describing import run_describe
from skipstone_local.commands.getting import GetQuery, run_get
from skipstone_operator.resources.kinds import GROUP, KINDS, VERSION

from tests.cluster.controlplane import ControlPlane
from tests.kube.cases import TABLE, WAREHOUSE, Manifest, manifest
from tests.kube.test_columns_printed import STATUS, TIME

#: The age of an object that was just made, at the end of a line or in a table of Events.
AGE = re.compile(r"\b(\d+s|<invalid>)(?= *$|  )", re.MULTILINE)


class Said:
    """A screen, and what was printed to it."""

    def __init__(self) -> None:
        self.out, self.err = io.StringIO(), io.StringIO()
        self.screen = Screen(Console(file=self.out), Console(file=self.err))

    def taken(self) -> str:
        """What was printed since the last call."""
        text = self.out.getvalue()
        self.out.truncate(self.out.seek(0))
        return text


@pytest.fixture
def said() -> Said:
    return Said()


@pytest.fixture
def objects(control_plane: ControlPlane, namespace: str, said: Said) -> Objects:
    return open_kubeconfig(control_plane.kubeconfig_admin, namespace, said.screen.note)


@pytest.fixture
def filled(api: CustomObjectsApi, namespace: str) -> str:
    """A namespace with two objects of each kind, one of which has a status."""
    for kind, (spec, status, _) in STATUS.items():
        plural = KINDS[kind].plural
        for name in ("one", "the-second"):
            made = api.create_namespaced_custom_object(GROUP, VERSION, namespace, plural, manifest(kind, spec, name))
            if name == "one":
                told = {**made, "status": status}
                api.replace_namespaced_custom_object_status(GROUP, VERSION, namespace, plural, name, told)
    return namespace


def without_ages(text: str) -> str:
    return AGE.sub("AGE", text)


GETS = (
    *(f"{kind}" for kind in ("wh", "tbl", "si", "lj", "mj", "ms", "skipstone")),
    *("mergejobs -o wide", "wh,tbl,pods", "tbl/one wh/one tbl/the-second", "si one the-second -o name"),
    *("tbl one -o yaml", "tbl -o json", "wh,si -o yaml", "serviceaccounts -o wide"),
)


def test_get_prints_what_kubectl_prints(control_plane: ControlPlane, objects: Objects, filled: str, said: Said) -> None:
    for line in GETS:
        words, _, output = line.partition(" -o ")
        run_get(objects, said.screen, GetQuery(words=words.split(), namespace=filled, format=output))
        printed = said.taken()
        expected = control_plane.kubectl("get", *line.split(), "--namespace", filled)
        if output in ("yaml", "json"):
            assert yaml.safe_load(printed) == yaml.safe_load(expected), line
        if line == "skipstone":
            # A category has its kinds in the order in which the API server happens to list them.
            printed, expected = ("\n\n".join(sorted(text.strip().split("\n\n"))) for text in (printed, expected))
        if output != "json":
            assert without_ages(printed) == without_ages(expected), line


def test_get_over_all_namespaces_and_by_labels(control_plane: ControlPlane, objects: Objects, said: Said) -> None:
    control_plane.kubectl("label", "serviceaccount", "default", "x=y", "--namespace", objects.namespace)
    selected = ("--selector", "x=y")
    run_get(objects, said.screen, GetQuery(words=["sa"], namespace="", labels="x=y"))
    expected = control_plane.kubectl("get", "sa", "-A", *selected)
    assert without_ages(said.out.getvalue()) == without_ages(expected)
    run_get(objects, said.screen, GetQuery(words=["ns"], namespace=""))
    assert "default" in said.out.getvalue()


def test_what_is_not_there_is_said(objects: Objects, said: Said) -> None:
    here = objects.namespace
    assert run_get(objects, said.screen, GetQuery(words=["tbl"], namespace=here)) is ExitCode.FINE
    assert said.err.getvalue() == f"No resources found in {here} namespace.\n"
    with pytest.raises(NotFound, match=f"no Table x in namespace {here}: see 'skipstone local get tables"):
        run_get(objects, said.screen, GetQuery(words=["tbl", "x"], namespace=here))
    with pytest.raises(CliError, match="no resource type 'tbls'"):
        run_get(objects, said.screen, GetQuery(words=["tbls"], namespace=here))
    with pytest.raises(CliError, match="--output is 'yml': use wide, yaml, json or name"):
        GetQuery(words=["tbl"], namespace=here, format="yml")


def test_watch_prints_each_change(
    api: CustomObjectsApi, objects: Objects, filled: str, said: Said, control_plane: ControlPlane
) -> None:
    class Enough(Exception):
        pass

    seen: list[str] = []

    class Ending(io.StringIO):
        def write(self, text: str) -> int:
            seen.append(text)
            if len(seen) == 1:
                patch = {"spec": {"suspend": True}}
                api.patch_namespaced_custom_object(GROUP, VERSION, filled, "secondaryindexes", "one", patch)
            elif "one" in text:
                raise Enough
            return len(text)

    screen = Screen(Console(file=Ending()), Console(file=said.err))
    with suppress(Enough):
        run_get(objects, screen, GetQuery(words=["si"], namespace=filled, watch=True))
    first = control_plane.kubectl("get", "si", "--namespace", filled)
    assert without_ages(seen[0]) == without_ages(first)
    assert seen[-1].split()[0] == "one"
    assert "NAME" not in seen[-1]


def test_apply_takes_turns_with_kubectl(
    control_plane: ControlPlane, objects: Objects, said: Said, tmp_path: Path
) -> None:
    file = tmp_path / "lake.yaml"
    table, warehouse = manifest("Table", TABLE, "orders"), manifest("Warehouse", WAREHOUSE, "lake")
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "keys"}, "stringData": {"a": "<b>"}}

    def ours(*documents: Manifest) -> list[str]:
        file.write_text("---\n" + yaml.safe_dump_all(documents))
        assert run_apply(objects, said.screen, Sources([str(tmp_path)])) is ExitCode.FINE
        return said.taken().splitlines()

    def kubectls() -> list[str]:
        return control_plane.kubectl("apply", "-f", str(file), "--namespace", objects.namespace).splitlines()

    names = ("warehouse.skipstone.dev/lake", "table.skipstone.dev/orders", "secret/keys")
    assert ours(warehouse, table, secret) == [f"{name} created" for name in names]
    assert ours(warehouse, table, secret) == [f"{name} unchanged" for name in names]
    # kubectl takes the defaults within a Table's columns for a change.
    assert kubectls()[0] == f"{names[0]} unchanged"
    changed = {**table, "metadata": {"name": "orders", "labels": {"team": "a"}}}
    assert ours(warehouse, changed) == [f"{names[0]} unchanged", f"{names[1]} configured"]
    assert kubectls()[0] == f"{names[0]} unchanged"
    # What somebody else set stays, and what is not applied any longer goes.
    control_plane.kubectl("label", "tbl", "orders", "other=b", "--namespace", objects.namespace)
    assert ours(table) == [f"{names[1]} configured"]
    stored = objects.get(objects.resources.find("tbl")[0], objects.namespace, "orders")
    assert stored["metadata"]["labels"] == {"other": "b"}


def test_apply_says_what_is_wrong_and_goes_on(objects: Objects, said: Said, tmp_path: Path) -> None:
    file = tmp_path / "lake.yaml"
    wrong = manifest("Table", {**TABLE, "primaryKey": "id"}, "orders")
    unknown = manifest("Warehouse", {**WAREHOUSE, "tint": "red"}, "lake")
    fine = manifest("Warehouse", WAREHOUSE, "sea")
    file.write_text(yaml.safe_dump_all([wrong, unknown, fine]))
    assert run_apply(objects, said.screen, Sources([str(file)])) is ExitCode.REFUSED
    assert said.out.getvalue() == "warehouse.skipstone.dev/sea created\n"
    first, second = said.err.getvalue().splitlines()
    assert f"{file}: Table orders: " in first
    assert "spec.primaryKey" in first
    assert 'unknown field "spec.tint"' in second
    file.write_text(yaml.safe_dump({**fine, "metadata": {"name": "sea", "namespace": "other"}}))
    with pytest.raises(CliError, match="is of namespace other, --namespace is mine: use one"):
        run_apply(objects, said.screen, Sources([str(file)], "mine"))
    with pytest.raises(Refused) as refused:
        objects.create(objects.resources.find("tbl")[0], wrong)
    assert (refused.value.status, refused.value.reason) == (422, "Invalid")


def test_describe_prints_what_kubectl_prints(
    control_plane: ControlPlane, api_client: object, objects: Objects, filled: str, said: Said
) -> None:
    control_plane.kubectl("label", "tbl", "one", "team=a", "app=b", "--namespace", filled)
    control_plane.kubectl("annotate", "tbl", "one", f"long={'x' * 150}", "short=b", "--namespace", filled)
    (resource,) = objects.resources.find("tbl")
    uid = objects.get(resource, filled, "one")["metadata"]["uid"]
    about = {"apiVersion": f"{GROUP}/{VERSION}", "kind": "Table", "name": "one", "namespace": filled, "uid": uid}
    event = {"involvedObject": about, "type": "Normal", "firstTimestamp": TIME, "lastTimestamp": TIME}
    for reason, more in (
        ("Checked", {"message": "all is fine\n", "source": {"component": "operator"}}),
        ("Again", {"message": "twice", "count": 2, "reportingComponent": "skipstone.dev/operator"}),
    ):
        named = {"metadata": {"name": f"one.{reason.lower()}"}, "reason": reason, **event, **more}
        CoreV1Api(api_client).create_namespaced_event(filled, named)
    for words in (["tbl", "one"], ["mj/one"]):
        run_describe(objects, said.screen, words, filled, datetime.now(UTC))
        assert said.taken() == control_plane.kubectl("describe", *words, "--namespace", filled)


def test_delete_waits_until_objects_are_gone(
    control_plane: ControlPlane, objects: Objects, filled: str, said: Said, tmp_path: Path
) -> None:
    def delete(**query: object) -> ExitCode:
        return run_delete(objects, said.screen, DeleteQuery(**{"words": (), "sources": (), "namespace": "", **query}))

    assert delete(words=["si", "one"]) is ExitCode.FINE
    assert said.out.getvalue() == f'secondaryindex.skipstone.dev "one" deleted from {filled} namespace\n'
    with pytest.raises(NotFound, match="no SecondaryIndex one"):
        delete(words=["si/one"])
    assert delete(words=["si/one"], ignore_missing=True) is ExitCode.FINE
    with pytest.raises(CliError, match="name the objects to delete, or add --all"):
        delete(words=["mj"])
    assert delete(words=["mj,lj"], every=True) is ExitCode.FINE
    assert control_plane.kubectl("get", "mj,lj", "--namespace", filled) == ""
    file = tmp_path / "table.yaml"
    file.write_text(yaml.safe_dump(manifest("Table", TABLE, "one")))
    hold = ("patch", "tbl", "one", "--namespace", filled, "--type", "merge", "--patch")
    control_plane.kubectl(*hold, '{"metadata": {"finalizers": ["tests.skipstone.dev/hold"]}}')
    with pytest.raises(OutcomeFailed, match="Table one is still there after 0 seconds"):
        delete(sources=[str(file)], seconds=0)
    control_plane.kubectl(*hold, '{"metadata": {"finalizers": []}}')
    assert delete(sources=[str(file)], ignore_missing=True) is ExitCode.FINE
