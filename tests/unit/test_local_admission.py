"""The Admission of `skipstone local` without a server: what it cannot enforce it refuses to load."""

from __future__ import annotations

import copy
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from skipstone_local.admission import Admission, Rejected, load_definitions
from skipstone_local.admission.gotext import to_json
from skipstone_local.admission.quantities import compare, parse_quantity
from skipstone_local.admission.rules.programs import compiled
from skipstone_local.admission.rules.trees import UnsupportedRuleError, all_rules, collect_rules
from skipstone_local.admission.schemas.nodes import UnknownKeywordError, parse_schema
from skipstone_operator.resources.checks import validate_spec
from skipstone_operator.resources.kinds import KINDS, parse

from tests.examples import ROOT
from tests.kube.cases import TABLE, changed, manifest
from tests.kube.schedule_cases import ACCEPTED, REJECTED

#: Some of the cases, of all kinds.
CASES = (*ACCEPTED, *REJECTED)[::6]
SCHEMAS = [definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"] for definition in load_definitions()]


def test_the_definitions_of_the_package_are_those_of_the_project() -> None:
    written = [yaml.load(path.read_text(), yaml.CSafeLoader) for path in sorted((ROOT / "crds").glob("*.yaml"))]
    by_name = sorted(load_definitions(), key=lambda definition: definition["metadata"]["name"])
    assert by_name == written
    assert len(written) == len(KINDS)


def test_every_rule_and_message_of_the_definitions_compiles() -> None:
    rules = [rule for schema in SCHEMAS for rule in all_rules(collect_rules(parse_schema(schema)))]
    assert len(rules) > 200
    for rule in rules:
        assert compiled(rule.text) is not None
        assert not rule.message_expression or compiled(rule.message_expression) is not None


@pytest.mark.parametrize(
    ("schema", "says"),
    [
        ({"type": "string", "pattern": "^a$"}, "has pattern, which"),
        ({"type": "object", "properties": {"a": {"oneOf": []}}}, "the schema of a has oneOf"),
        ({"type": "string", "format": "email"}, "has the format email"),
        ({"type": "object", "additionalProperties": True}, "is not an object"),
    ],
)
def test_a_schema_that_cannot_be_enforced_is_not_loaded(schema: dict[str, Any], says: str) -> None:
    with pytest.raises(UnknownKeywordError, match=says):
        parse_schema(schema)


@pytest.mark.parametrize(
    ("rule", "says"),
    [
        ({"rule": "self == oldSelf.orValue('')", "optionalOldSelf": True}, "has optionalOldSelf"),
        ({"rule": "self.__namespace__ == ''"}, "uses an escaped name"),
        ({"rule": "true", "fieldPath": "['a b']"}, "has the fieldPath"),
        ({"rule": "true", "reason": "Because"}, "has the reason 'Because'"),
    ],
)
def test_a_rule_that_cannot_be_judged_is_not_loaded(rule: dict[str, Any], says: str) -> None:
    with pytest.raises(UnsupportedRuleError, match=says):
        collect_rules(parse_schema({"type": "string", "x-kubernetes-validations": [rule]}))


def test_what_the_operator_refuses_by_itself_admission_refuses_unless_the_case_is_for_the_operator_alone() -> None:
    admission = Admission.load()
    for case in REJECTED:
        obj = manifest(case.kind, case.changed)
        obj["metadata"]["namespace"] = "default"
        if case.operator_only:
            admission.admit(obj)
            assert validate_spec(case.kind, parse(obj).spec) is not None
        else:
            with pytest.raises(Rejected) as refused:
                admission.admit(obj)
            assert any(cause.field.startswith(case.at) for cause in refused.value.causes), case.name


def test_an_object_of_an_older_schema_is_completed_when_it_is_read() -> None:
    stored = manifest("Table", changed(TABLE, {"gone": 1}))
    completed = Admission.load().complete(stored)
    assert "gone" in stored["spec"] and "gone" not in completed["spec"]
    assert completed["spec"]["management"] == "Managed"
    assert completed["status"]["observedGeneration"] == -1


def test_admission_leaves_its_arguments_and_its_definitions_as_they_are() -> None:
    admission, definitions = Admission.load(), copy.deepcopy(load_definitions())
    obj = {**manifest("Table", TABLE), "status": {"rows": 1}}
    obj["metadata"]["namespace"] = "default"
    given = copy.deepcopy(obj)
    first = admission.admit(obj).obj
    first["spec"]["columns"].clear()
    first["status"].clear()
    assert obj == given
    assert admission.admit(obj).obj["status"] == {"observedGeneration": -1}
    assert load_definitions() == definitions


def test_threads_share_an_admission() -> None:
    admission, objects = Admission.load(), [manifest(case.kind, case.changed) for case in CASES]

    def judged(number: int) -> list[str]:
        return [verdict(admission, obj) for obj in (*objects[number:], *objects[:number])]

    with ThreadPoolExecutor(4) as pool:
        verdicts = list(pool.map(judged, range(4)))
    for number, found in enumerate(verdicts):
        assert [*found[len(found) - number :], *found[: len(found) - number]] == verdicts[0]


def verdict(admission: Admission, obj: dict[str, Any]) -> str:
    """What becomes of an object, in one text."""
    try:
        admitted = admission.admit({**obj, "metadata": {**obj["metadata"], "namespace": "default"}})
    except Rejected as refused:
        return refused.message
    return to_json(admitted.obj)


@pytest.mark.parametrize(
    ("text", "amount"),
    [("1", 1), ("250m", "0.25"), ("1.5Gi", 1.5 * 2**30), ("1e3", 1000), ("1E", 10**18), ("-2k", -2000), (".5", "0.5")],
)
def test_amounts_are_read_as_kubernetes_does(text: str, amount: Any) -> None:
    assert parse_quantity(text) == Decimal(str(amount))


@pytest.mark.parametrize("text", ["", "half", "1GB", "1 Gi", "1..2", "--1"])
def test_other_texts_are_not_amounts(text: str) -> None:
    with pytest.raises(ValueError, match="quantit"):
        compare(text, "1")


@given(st.integers(0, 10**6), st.integers(0, 10**6))
def test_amounts_are_compared_across_units(left: int, right: int) -> None:
    order = (left > right) - (left < right)
    assert compare(f"{left}Mi", f"{right}Mi") == compare(f"{left * 1024}Ki", f"{right * 2**20}") == order


def test_values_are_written_as_go_writes_json() -> None:
    value = {"b": [1.0, 1e21, 2.5, True, None], "a": "<&>\u2028\u00fc"}
    assert to_json(value) == '{"a":"\\u003c\\u0026\\u003e\\u2028\u00fc","b":[1,1e+21,2.5,true,null]}'
