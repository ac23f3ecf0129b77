"""Requests of one release for an image of another: what earlier images do not know is only written when it is used."""

from __future__ import annotations

import json
import os
import typing
from collections.abc import Iterator
from dataclasses import MISSING, fields, is_dataclass
from pathlib import Path

import pytest
from skipstone_core.contract.requests import CatalogRef, CatalogType, JobRequest, RunKind, WarehouseRef
from skipstone_core.errors import ContractViolation

#: The fields that are written in every request with such a part, one a line, as of the last release: images of all
#: releases of this CONTRACT_VERSION know them.
KNOWN = Path(__file__).parent / "golden" / "request-fields.txt"
REQUEST = JobRequest(
    kind=RunKind.CHECK,
    run_id="one",
    attempt=1,
    warehouse=WarehouseRef(name="wh", root="/data", catalog=CatalogRef(type=CatalogType.SQL)),
    owner_kind="Warehouse",
    owner_name="wh",
    owner_uid="1",
)


def types_in(annotation: object) -> Iterator[type]:
    """The dataclasses that a type names."""
    if isinstance(annotation, type) and is_dataclass(annotation):
        yield annotation
    for argument in typing.get_args(annotation):
        yield from types_in(argument)


def reachable(kind: type) -> set[type]:
    """``kind`` and all dataclasses that its fields, and theirs, are made of."""
    known, waiting = set[type](), [kind]
    while waiting:
        if (kind := waiting.pop()) not in known:
            known.add(kind)
            waiting += [inner for hint in typing.get_type_hints(kind).values() for inner in types_in(hint)]
    return known


def written_always() -> list[str]:
    """Fields that are in every request with such a part: those without the default None."""
    return sorted(
        f"{kind.__name__}.{field.name}"
        for kind in reachable(JobRequest)
        for field in fields(kind)
        if field.default is not None or field.default_factory is not MISSING
    )


def test_a_new_field_of_requests_is_only_written_when_it_is_used() -> None:
    if os.environ.get("SKIPSTONE_WRITE_GOLDEN"):
        KNOWN.write_text("".join(f"{name}\n" for name in written_always()))
    known = KNOWN.read_text().splitlines()
    kinds = {name.partition(".")[0] for name in known}
    # a part of a new kind is only in requests that use it, as the field that holds it is new too
    new = sorted(name for name in {*written_always()} - {*known} if name.partition(".")[0] in kinds)
    assert not new, f"{new}: images of earlier releases refuse every request with them, so make None their default"
    gone = sorted({*known} - {*written_always()})
    assert not gone, f"{gone}: images of earlier releases need them, so raise CONTRACT_VERSION and write {KNOWN} again"


@pytest.mark.parametrize(
    ("change", "problem"), [({"later": 1}, "unknown field 'later'"), ({"version": 2}, "version 2")]
)
def test_an_image_that_does_not_know_a_request_says_which_image_does(change: dict[str, object], problem: str) -> None:
    text = json.dumps({**json.loads(REQUEST.to_json()), **change})
    with pytest.raises(ContractViolation, match=problem) as refused:
        JobRequest.from_json(text)
    assert str(refused.value).endswith(
        ": set spec.spark.image of the Warehouse to an image of the operator's version, or leave it out"
    )
