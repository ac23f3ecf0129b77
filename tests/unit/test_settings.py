"""Settings from the environment: defaults, and one sentence that names the variable for each bad value."""

from __future__ import annotations

import pytest
from skipstone_operator.settings import BadSetting, load_settings

GIVEN = {
    "SKIPSTONE_NAMESPACES": "air,sea",
    "SKIPSTONE_OPERATOR_NAMESPACE": "skipstone",
    "SKIPSTONE_SPARK_IMAGE": "skipstone/spark:1",
}


def test_what_is_not_set_has_a_default() -> None:
    settings = load_settings(GIVEN)
    assert settings.namespaces == ("air", "sea")
    assert (settings.operator_namespace, settings.spark_image) == ("skipstone", "skipstone/spark:1")
    assert (settings.image_pull_policy, settings.image_pull_secrets) == ("IfNotPresent", ())
    assert (settings.service_account, settings.lease_name) == ("skipstone-spark", "skipstone-operator")
    assert (settings.log_level, settings.workers, settings.executors) == ("info", 8, True)
    assert (settings.probe_port, settings.metrics_port, settings.dashboard_port) == (8080, 8081, 0)


def test_everything_can_be_set() -> None:
    settings = load_settings(
        GIVEN
        | {
            "SKIPSTONE_IMAGE_PULL_POLICY": "never",
            "SKIPSTONE_IMAGE_PULL_SECRETS": "one, two",
            "SKIPSTONE_SERVICE_ACCOUNT": "runner",
            "SKIPSTONE_LEASE_NAME": "mine",
            "SKIPSTONE_LOG_LEVEL": "DEBUG",
            "SKIPSTONE_WORKERS": "3",
            "SKIPSTONE_EXECUTORS": "off",
            "SKIPSTONE_KEEPS_DRIVERS": "off",
            "SKIPSTONE_PROBE_PORT": "9000",
            "SKIPSTONE_METRICS_PORT": "9001",
            "SKIPSTONE_DASHBOARD_PORT": "9002",
            "POD_NAME": "operator-0",
        }
    )
    assert (settings.image_pull_policy, settings.image_pull_secrets) == ("Never", ("one", "two"))
    assert (settings.service_account, settings.lease_name) == ("runner", "mine")
    assert (settings.log_level, settings.workers, settings.identity) == ("debug", 3, "operator-0")
    assert not settings.executors
    assert not settings.keeps_drivers
    assert (settings.probe_port, settings.metrics_port, settings.dashboard_port) == (9000, 9001, 9002)


def test_namespaces_may_be_spaced_and_repeated() -> None:
    assert load_settings(GIVEN | {"SKIPSTONE_NAMESPACES": " air , sea,air,"}).namespaces == ("air", "sea")


@pytest.mark.parametrize("name", ["SKIPSTONE_NAMESPACES", "SKIPSTONE_OPERATOR_NAMESPACE", "SKIPSTONE_SPARK_IMAGE"])
@pytest.mark.parametrize("value", [None, "", "  "])
def test_what_has_no_default_must_be_set(name: str, value: str | None) -> None:
    environment = {key: text for key, text in (GIVEN | {name: value}).items() if text is not None}
    with pytest.raises(BadSetting, match=f"^{name} is not set: set it"):
        load_settings(environment)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("SKIPSTONE_NAMESPACES", "Air"),
        ("SKIPSTONE_NAMESPACES", "*"),
        ("SKIPSTONE_NAMESPACES", "a" * 64),
        ("SKIPSTONE_NAMESPACES", ",,"),
        ("SKIPSTONE_OPERATOR_NAMESPACE", "a.b"),
        ("SKIPSTONE_SERVICE_ACCOUNT", "under_score"),
        ("SKIPSTONE_LEASE_NAME", "-x"),
        ("SKIPSTONE_IMAGE_PULL_SECRETS", "one two"),
        ("SKIPSTONE_IMAGE_PULL_POLICY", "Sometimes"),
        ("SKIPSTONE_LOG_LEVEL", "loud"),
        ("SKIPSTONE_WORKERS", "0"),
        ("SKIPSTONE_WORKERS", "many"),
        ("SKIPSTONE_WORKERS", "2.5"),
        ("SKIPSTONE_WORKERS", "257"),
        ("SKIPSTONE_PROBE_PORT", "65536"),
    ],
)
def test_a_bad_value_is_one_sentence_that_names_its_variable(name: str, value: str) -> None:
    with pytest.raises(BadSetting) as caught:
        load_settings(GIVEN | {name: value})
    sentence = str(caught.value)
    assert sentence.startswith(name)
    assert "\n" not in sentence
