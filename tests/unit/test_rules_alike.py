"""Rules are spelled twice, in CEL for the API server and in Python for the operator: both find the same broken.

CEL is judged by the Admission of `skipstone local`, which tests/kube compares with a kube-apiserver.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from skipstone_core.errors import BadSpec, ContractViolation
from skipstone_local.admission import Admission, Rejected
from skipstone_operator.manifests.templates import check_pod_template
from skipstone_operator.resources.kinds import KINDS, parse
from skipstone_operator.resources.publishing.crds import root_schema
from skipstone_operator.resources.publishing.fieldreference import all_messages
from skipstone_operator.resources.rules.bounds import find_violations

from tests.examples import cases
from tests.kube.cases import BY_API_ONLY, POD_TEMPLATES, WAREHOUSE, changed, manifest
from tests.kube.mutations import changed_parts
from tests.kube.schedule_cases import ACCEPTED, REJECTED

#: Rules that the operator judges in another place: by the status, or where pods are built.
ELSEWHERE = {case.says for case in BY_API_ONLY}
#: Rules over an old and a new value, over names, and of pods, which are judged again where they are built.
CEL_ALONE = ("after creation", "metadata.name may have", "spark.podTemplate.spec.")
#: What an API server says of an object whose other errors keep rules from being judged.
UNJUDGED = "were not checked"
BASES = [case for case in (*ACCEPTED, *REJECTED) if len(str(case.changed)) < 3000]


@cache
def admission() -> Admission:
    return Admission.load()


@cache
def messages(kind: str) -> list[str]:
    """The sentences of all rules of ``kind``, the longest first: one may begin as another does."""
    return sorted(set(all_messages(root_schema(KINDS[kind]))), key=len, reverse=True)


def _general(message: str) -> str:
    return re.sub(r"does not accept '.*?'(?=: )", "has a key that is not allowed", message)


def _of_rules(kind: str, found: list[tuple[str, str]]) -> Iterator[tuple[str, str]]:
    for field, message in found:
        rule = next((text for text in messages(kind) if text in _general(message)), None)
        if rule is not None and not any(said in rule for said in ELSEWHERE):
            yield field, rule


@dataclass(frozen=True)
class Broken:
    """The broken rules of one manifest, as field and sentence, and whether each of both was asked for all of them."""

    by_cel: set[tuple[str, str]]
    by_operator: set[tuple[str, str]]
    cel_is_whole: bool
    operator_is_whole: bool

    @property
    def alike(self) -> bool:
        """Whether nothing is broken for one of them only, that the other was asked for."""
        missed = self.by_operator - self.by_cel if self.cel_is_whole else set()
        return not missed and not (self.by_cel - self.by_operator if self.operator_is_whole else set())


def broken(kind: str, spec: dict[str, Any]) -> Broken | None:
    """The rules that a manifest breaks; None for one that the types of the operator cannot hold."""
    obj = manifest(kind, spec)
    obj["metadata"]["namespace"] = "default"
    found: list[tuple[str, str]] = []
    read = obj
    try:
        read = admission().admit(copy.deepcopy(obj)).obj
    except Rejected as refused:
        found = [(cause.field, cause.message) for cause in refused.causes]
    try:
        typed = parse(read).spec
    except ContractViolation:
        assert read is obj, "what admission takes can be read"
        return None
    violations, operator_is_whole = [], True
    try:
        violations += ((one.field, one.message) for one in find_violations(typed, "spec"))
    except (KeyError, ValueError):
        # The operator asks for the first one only: rules are not made for values whose own field is wrong.
        assert violations
        operator_is_whole = False
    return Broken(
        by_cel=set(_of_rules(kind, found)),
        by_operator=set(_of_rules(kind, violations)),
        cel_is_whole=not any(UNJUDGED in message for _, message in found),
        operator_is_whole=operator_is_whole,
    )


def test_each_case_breaks_the_same_rules_for_both() -> None:
    judged = {case.name: broken(case.kind, case.changed) for case in (*ACCEPTED, *REJECTED)}
    unlike = {name: one for name, one in judged.items() if one is not None and not one.alike}
    assert unlike == {}


def test_every_rule_with_two_spellings_is_broken_by_a_case_for_both() -> None:
    judged = [(case.kind, broken(case.kind, case.changed)) for case in REJECTED]
    both = {(kind, rule) for kind, one in judged if one is not None for _, rule in one.by_cel & one.by_operator}
    left = {(kind, rule) for kind in KINDS for rule in messages(kind)} - both
    assert len(both) > 150
    assert {(kind, rule) for kind, rule in left if not any(said in rule for said in (*ELSEWHERE, *CEL_ALONE))} == set()


@pytest.mark.parametrize(("field", "value", "says"), POD_TEMPLATES, ids=lambda value: str(value)[:30])
def test_a_field_of_pods_that_cel_refuses_the_operator_refuses(field: str, value: object, says: str) -> None:
    template = {"spec": {field: value}}
    one = broken("Warehouse", changed(WAREHOUSE, {"spark.podTemplate": template}))
    assert one is not None
    assert any(says in rule for _, rule in one.by_cel)
    with pytest.raises(BadSpec, match=field):
        check_pod_template(template)


@given(data=st.data(), number=st.integers(0, len(BASES) - 1))
@settings(max_examples=cases(100, 4000))
def test_changed_manifests_break_the_same_rules_for_both(data: st.DataObject, number: int) -> None:
    base = BASES[number]
    one = broken(base.kind, data.draw(changed_parts(base.kind, "spec", base.changed)))
    assert one is None or one.alike, one
