"""Variables and statuses of pods, as kubelet makes them."""

from __future__ import annotations

import base64
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from skipstone_local.runner.environment import CannotMake, Variable, expand, resolve
from skipstone_local.runner.statuses import Ended, NotStarted, Running, State, build_status, fit_tail, has_status
from skipstone_operator.worlds.pods import PodFacts, read_pod

NOW, LATER = "2026-01-01T00:00:00Z", "2026-01-01T00:00:09Z"
OBJECTS = {
    ("Secret", "keys"): {"kind": "Secret", "data": {"PASSWORD": base64.b64encode(b"o=p /tmp").decode()}},
    ("ConfigMap", "conf"): {"kind": "ConfigMap", "data": {"a": "1"}},
}


def pod(**spec: Any) -> dict[str, Any]:
    container = {"name": "spark-kubernetes-driver", "image": "i", **spec}
    return {
        "metadata": {
            "name": "p", "namespace": "air", "uid": "u", "labels": {"a/b": "c"}, "annotations": {"n": "m"}
        },
        "spec": {"nodeName": "local", "serviceAccountName": "s", "containers": [container]},
        "status": {},
    }  # fmt: skip


def variables(*env: dict[str, Any]) -> tuple[Variable, ...]:
    made = pod(env=list(env))
    return resolve(made["spec"]["containers"][0], made, lambda kind, name: OBJECTS.get((kind, name)))


def values(*env: dict[str, Any]) -> dict[str, str]:
    return {variable.name: variable.value for variable in variables(*env)}


def from_key(name: str, reference: str, /, **of: Any) -> dict[str, Any]:
    return {"name": name, "valueFrom": {reference: of}}


def test_later_variables_refer_to_earlier_ones() -> None:
    env = [
        {"name": "A", "value": "1"}, {"name": "B", "value": "$(A)$(C) $$(A) $(A"}, {"name": "C", "value": "3"},
        {"name": "A", "value": "2"}, {"name": "D", "value": "$(A)$(B)"}, {"name": "E"},
    ]  # fmt: skip
    assert values(*env) == {"A": "2", "B": "1$(C) $(A) $(A", "C": "3", "D": "21$(C) $(A) $(A", "E": ""}


@given(st.text("$()AB "))
def test_what_is_not_a_reference_stays(text: str) -> None:
    assert expand(text.replace("$", ""), {"A": "x"}) == text.replace("$", "")
    assert (
        expand(f"$({text.replace('$', '').replace(')', '')}!)", {}) == f"$({text.replace('$', '').replace(')', '')}!)"
    )


def test_fields_of_the_pod() -> None:
    paths = {
        "metadata.name": "p", "metadata.namespace": "air", "metadata.uid": "u", "metadata.labels['a/b']": "c",
        "metadata.annotations['n']": "m", "metadata.annotations['x']": "", "status.podIP": "127.0.0.1",
        "spec.nodeName": "local", "spec.serviceAccountName": "s",
    }  # fmt: skip
    env = [from_key(f"V{n}", "fieldRef", fieldPath=path) for n, path in enumerate(paths)]
    assert list(values(*env).values()) == list(paths.values())


def test_keys_of_secrets_and_config_maps() -> None:
    env = [
        from_key("P", "secretKeyRef", name="keys", key="PASSWORD"),
        from_key("Q", "secretKeyRef", name="keys", key="TOKEN", optional=True),
        from_key("R", "secretKeyRef", name="none", key="TOKEN", optional=True),
        from_key("S", "configMapKeyRef", name="conf", key="a"),
        {"name": "T", "value": "$(P)"},
    ]
    assert values(*env) == {"P": "o=p /tmp", "S": "1", "T": "o=p /tmp"}
    assert [variable.literal for variable in variables(*env)] == [False, False, True]


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        (from_key("P", "secretKeyRef", name="none", key="k"), 'secret "none" not found'),
        (from_key("P", "configMapKeyRef", name="none", key="k"), 'configmap "none" not found'),
        (from_key("P", "secretKeyRef", name="keys", key="k"), "couldn't find key k in Secret air/keys"),
        (from_key("P", "configMapKeyRef", name="conf", key="k"), "couldn't find key k in ConfigMap air/conf"),
        (from_key("P", "resourceFieldRef", resource="limits.cpu"), "env[P].valueFrom: resourceFieldRef is not supp"),
        (from_key("P", "fieldRef", fieldPath="spec.x"), "fieldPath spec.x is not supported here: write the value"),
    ],
)
def test_what_is_missing_is_said_as_kubelet_says_it(entry: dict[str, Any], message: str) -> None:
    with pytest.raises(CannotMake) as caught:
        variables(entry)
    assert str(caught.value).startswith(message)


def told(state: State, before: dict[str, Any] | None = None) -> tuple[dict[str, Any], PodFacts]:
    made = before or pod()
    made = {**made, "status": build_status(made, state, NOW)}
    return made, read_pod(made)


def test_the_operator_reads_a_pod_that_waits() -> None:
    _, facts = told(NotStarted("CreateContainerConfigError", 'secret "keys" not found'))
    assert facts.waits is not None
    assert (facts.waits.reason, facts.waits.message) == ("ContainerConfigError", 'secret "keys" not found')
    _, facts = told(NotStarted("Unschedulable", 'persistentvolumeclaim "lake" not found', volume=True))
    assert facts.waits is not None
    assert facts.waits.reason == "VolumeUnavailable"


def test_the_operator_reads_a_pod_that_runs() -> None:
    made, facts = told(Running(NOW))
    assert facts.live
    assert facts.started is not None
    assert (facts.waits, facts.exit_code, facts.unanswered) == (None, None, None)
    assert has_status(made, build_status(made, Running(NOW), LATER))
    assert made["status"]["phase"] == "Running"


@pytest.mark.parametrize(
    ("end", "phase", "disrupted", "late"),
    [
        (Ended(started=NOW, finished=LATER, exit_code=0, message="m"), "Succeeded", False, False),
        (Ended(started=NOW, finished=LATER, exit_code=65), "Failed", False, False),
        (Ended(started=NOW, finished=LATER, exit_code=137, reason="ContainerStatusUnknown"), "Failed", True, False),
        (Ended(started=NOW, finished=LATER, exit_code=143, pod_reason="Terminated"), "Failed", True, False),
        (Ended(started=NOW, finished=LATER, exit_code=143, pod_reason="DeadlineExceeded"), "Failed", False, True),
    ],
)
def test_the_operator_reads_a_pod_that_has_ended(end: Ended, phase: str, disrupted: bool, late: bool) -> None:
    made, facts = told(end, told(Running(NOW))[0])
    assert made["status"]["phase"] == phase
    assert facts.terminal
    assert (facts.exit_code, facts.disrupted, facts.deadline_passed) == (end.exit_code, disrupted, late)
    assert facts.text == end.message
    assert has_status(made, build_status(made, end, LATER))


def test_a_condition_keeps_its_time_while_it_stays() -> None:
    running, _ = told(Running(NOW))
    status = build_status(running, Ended(started=NOW, finished=LATER, exit_code=0), LATER)
    times = {condition["type"]: condition["lastTransitionTime"] for condition in status["conditions"]}
    assert (times["PodScheduled"], times["Initialized"], times["Ready"]) == (NOW, NOW, LATER)


def test_of_a_log_the_end_is_told() -> None:
    lines = b"".join(b"%d\n" % n for n in range(1000))
    assert fit_tail(lines).splitlines() == [str(n) for n in range(920, 1000)]
    assert len(fit_tail(b"x" * 9000)) == 2048
