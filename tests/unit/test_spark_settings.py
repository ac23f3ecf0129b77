"""Values of Spark settings: what Spark or Kubernetes would refuse is refused before anything starts."""

from __future__ import annotations

import pytest
from skipstone_operator.reconcilers.runs.requests import find_invalid_setting
from skipstone_operator.resources.checks import validate_spec
from skipstone_operator.resources.rules.sparkconf import SETTINGS, find_conf_problems

from tests.unit import objects
from tests.unit.world_cases import subject

REFUSED = {
    "spark.kubernetes.driver.request.cores": ["many; id", "0", "-1", "1e3", "2 ", "257", "0.0001", "9" * 400],
    "spark.kubernetes.executor.limit.cores": ["", "m", "1.5m", "half"],
    "spark.driver.memoryOverhead": ["plenty", "999999999t", "0", "1.5g", "9" * 400, "-1", "1x", "1gg"],
    "spark.driver.memoryOverheadFactor": ["half", "9" * 400, "-1", "1e9", "101", "nan", "inf", "0x1"],
    "spark.executor.memoryOverheadFactor": ["0", "0.0", "0.001", "101"],
    "spark.executor.pyspark.memory": ["1k", "2Gi", "17t"],
    "spark.sql.files.maxPartitionBytes": ["0", "128 m", "banana", "1pb"],
    "spark.sql.autoBroadcastJoinThreshold": ["-2", "no"],
    "spark.network.timeout": ["0", "120 s", "8d", "1w", "soon"],
    "spark.io.compression.codec": ["org.example.Codec", "gzip"],
    "spark.log.level": ["chatty", "INFO\nspark.jars=x"],
    "spark.sql.shuffle.partitions": ["0", "-1", "many", "9" * 400, "1.5"],
    "spark.speculation": ["yes", "1"],
    "spark.memory.fraction": ["0", "1", "2", ".5"],
    "spark.ui.enabled": ["maybe"],
}
ACCEPTED = {
    "spark.kubernetes.driver.request.cores": ["1", "0.5", "500m", "1m", "256"],
    "spark.driver.memoryOverhead": ["700", "700m", "2g", "2gb", "2Gi", "2GI"],
    "spark.driver.memoryOverheadFactor": ["0", "0.4", "2"],
    "spark.executor.pyspark.memory": ["512", "2g"],
    "spark.executor.memoryOverheadFactor": ["0.01", "0.4", "100"],
    "spark.driver.maxResultSize": ["0", "1g", "1073741824"],
    "spark.sql.autoBroadcastJoinThreshold": ["-1", "0", "10m"],
    "spark.network.timeout": ["120", "120s", "11s", "10min", "2h"],
    "spark.locality.wait": ["0", "0s", "3s"],
    "spark.io.compression.codec": ["zstd", "LZ4"],
    "spark.log.level": ["INFO", "warn"],
    "spark.speculation": ["true", "FALSE"],
}


@pytest.mark.parametrize(("name", "value"), [(name, value) for name in REFUSED for value in REFUSED[name]])
def test_a_value_that_no_run_starts_with_is_refused_by_name_and_way_out(name: str, value: str) -> None:
    finding = find_invalid_setting(subject(objects.warehouse(spark={"conf": {name: value}})))
    assert finding is not None
    assert finding.message.startswith(f"spec.spark.conf[{name}]: ")
    assert ": write" in finding.message
    assert len(finding.message) < 300


@pytest.mark.parametrize(("name", "value"), [(name, value) for name in ACCEPTED for value in ACCEPTED[name]])
def test_a_value_that_spark_takes_is_taken(name: str, value: str) -> None:
    assert find_invalid_setting(subject(objects.warehouse(spark={"conf": {name: value}}))) is None


@pytest.mark.parametrize("name", SETTINGS)
def test_no_setting_takes_any_text(name: str) -> None:
    assert [problem.name for problem in find_conf_problems({name: "many; id"}, 1)] == [name]


@pytest.mark.parametrize(
    ("conf", "cores", "says"),
    [
        ({"spark.executor.heartbeatInterval": "120s"}, 1, "must be shorter than spark.network.timeout"),
        ({"spark.executor.heartbeatInterval": "10000", "spark.network.timeout": "10"}, 1, "must be shorter"),
        ({"spark.network.timeout": "10s"}, 1, "must be longer than spark.executor.heartbeatInterval"),
        ({"spark.network.timeout": "500ms"}, 1, "must be longer"),
        ({"spark.executor.heartbeatInterval": "1500ms", "spark.network.timeout": "1900ms"}, 1, "must be shorter"),
        ({"spark.kubernetes.executor.limit.cores": "500m"}, 1, "less than the '1' cores"),
    ],
)
def test_settings_that_contradict_each_other_are_refused(conf: dict[str, str], cores: int, says: str) -> None:
    (problem,) = find_conf_problems(conf, cores)
    assert says in problem.message


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("rest-page-size", "many"),
        ("pool_pre_ping", "1"),
        ("snapshot-loading-mode", "some"),
        ("rest.sigv4-enabled", "yes"),
        ("rest.signing-name", "Glue!"),
        ("rest.signing-region", ""),
    ],
)
def test_values_of_catalog_settings_are_checked(name: str, value: str) -> None:
    catalog = {"type": "Sql", "properties": {name: value}}
    finding = validate_spec("Warehouse", subject(objects.warehouse(catalog=catalog)).spec)
    assert finding is not None
    assert finding.message.startswith(f"spec.catalog.properties[{name}]: ")
