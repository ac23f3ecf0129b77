"""Re-validation by the operator: it judges every manifest as the API server does, and some that CEL cannot."""

from __future__ import annotations

import re
from typing import Any

import pytest
from skipstone_core.codec import encode
from skipstone_core.errors import ContractViolation
from skipstone_core.reasons import Reason
from skipstone_operator.resources.checks import SpecProblem, validate_spec
from skipstone_operator.resources.kinds import KINDS, TABLE, parse, parse_as
from skipstone_operator.resources.publishing.crds import name_rule, root_schema
from skipstone_operator.resources.publishing.fieldreference import all_messages

from tests.kube import cases
from tests.kube.cases import BY_API_ONLY, POD_TEMPLATES, Case, manifest
from tests.kube.schedule_cases import ACCEPTED, EDITS, REJECTED, UNTYPED


def judge(case: Case) -> SpecProblem | None:
    return validate_spec(case.kind, parse(manifest(case.kind, case.changed)).spec)


@pytest.mark.parametrize("case", ACCEPTED, ids=lambda case: case.name)
def test_valid_spec_has_no_finding(case: Case) -> None:
    assert judge(case) is None


@pytest.mark.parametrize("case", REJECTED, ids=lambda case: case.name)
def test_invalid_spec_is_found_at_the_same_field_with_the_same_sentence(case: Case) -> None:
    finding = judge(case)
    assert finding is not None
    assert finding.field == case.at
    assert finding.message.startswith(f"{case.at}: ")
    fallback = re.sub(r"does not accept '.*'", "has a key that is not allowed", case.says)
    assert fallback in finding.message


@pytest.mark.parametrize("case", BY_API_ONLY, ids=lambda case: case.name)
def test_what_the_operator_judges_by_the_status_is_no_finding_in_the_spec(case: Case) -> None:
    assert judge(case) is None


@pytest.mark.parametrize("case", UNTYPED, ids=lambda case: case.name)
def test_spec_that_the_types_cannot_hold_is_refused_by_path(case: Case) -> None:
    with pytest.raises(ContractViolation, match=re.escape(case.at)):
        parse(manifest(case.kind, case.changed))


def test_unknown_column_type_has_its_own_reason() -> None:
    case = next(case for case in REJECTED if case.name == "type-unknown")
    finding = judge(case)
    assert finding is not None
    assert finding.reason is Reason.COLUMN_TYPE_UNSUPPORTED


@pytest.mark.parametrize("kind", KINDS)
def test_every_rule_of_the_schema_has_a_case(kind: str) -> None:
    known = [case.says for case in REJECTED if case.kind == kind and not case.by_schema]
    known += [case.says for case in BY_API_ONLY if case.kind == kind]
    known += [edit.says for edit in EDITS if edit.kind == kind]
    known += [says for _, _, says in POD_TEMPLATES] if kind == "Warehouse" else []
    known = [re.sub(r"does not accept '.*'", "has a key that is not allowed", says) for says in known if says]
    rules = {message for message in all_messages(root_schema(KINDS[kind])) if message != name_rule(KINDS[kind]).message}
    assert [message for message in rules if not any(says in message for says in known)] == []


@pytest.mark.parametrize("case", ACCEPTED, ids=lambda case: case.name)
def test_typed_spec_encodes_to_what_it_was_read_from(case: Case) -> None:
    spec = parse(manifest(case.kind, case.changed)).spec
    assert parse(manifest(case.kind, encode(spec))).spec == spec


def test_unknown_fields_are_ignored_when_reading() -> None:
    body = manifest("Table", {**cases.TABLE, "later": 1})
    assert parse(body).spec == parse(manifest("Table", cases.TABLE)).spec


def test_object_without_status_gets_an_empty_one() -> None:
    resource = parse_as(TABLE, {**manifest("Table", cases.TABLE), "status": None})
    assert resource.status.conditions == ()
    assert resource.status.segments.latest is None


@pytest.mark.parametrize("body", [{"kind": "Cluster"}, {}])
def test_object_of_another_kind_is_refused(body: dict[str, Any]) -> None:
    with pytest.raises(ContractViolation, match="is none of Warehouse, Table"):
        parse(body)


def test_object_of_the_wrong_kind_is_refused() -> None:
    with pytest.raises(ContractViolation, match="expected Table"):
        parse_as(TABLE, manifest("LoadJob", cases.LOAD))
