"""The server as a process: what it writes down of secrets and filters, and how it ends."""

from __future__ import annotations

import json
import signal
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
import requests
from pyiceberg.catalog import load_catalog
from skipstone.tables.catalogs import TOKEN_VARIABLE
from skipstone_core.contract.planning import SEAL_VARIABLE

from tests.spark.restserver import rest_catalog
from tests.unit.serving_bed import Guard, Trouble, filled, guard, rest_settings, server_process

OWN, SEAL, CALLER, VENDED = "canary-own-token", "canary-seal-key", "canary-caller-token", "canary-vended-key"
NAME, VALUE = "canary_table", "canary-value"
PLAN = f"/v1/namespaces/ns/tables/{NAME}/plan"
ENVIRONMENT = {TOKEN_VARIABLE: OWN, SEAL_VARIABLE: SEAL}


@pytest.fixture(scope="module")
def between(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guard]:
    """A guard before a REST catalog with one table."""
    with rest_catalog(tmp_path_factory.mktemp("rest")) as uri, guard(uri) as found:
        filled(load_catalog("own", type="rest", uri=uri), NAME)
        yield found
        found.trouble = lambda path: None


def test_no_secret_and_no_filter_is_written_down_or_told(between: Guard, tmp_path: Path) -> None:
    between.readers = {OWN: {NAME}, CALLER: {NAME}}
    caller = {"authorization": f"Bearer {CALLER}", "cookie": f"session={CALLER}"}
    loaded = requests.get(f"{between.address}{PLAN.removesuffix('/plan')}", headers=caller, timeout=30).json()
    vending = json.dumps({**loaded, "config": {"s3.secret-access-key": VENDED}}).encode()
    matching = {"filter": {"type": "eq", "term": "s", "value": VALUE}}
    told: list[str] = []
    with server_process(tmp_path, rest_settings(between.address, tmp_path, files_per_page=1), ENVIRONMENT) as server:

        def ask(path: str, body: object, headers: dict[str, str] = caller) -> requests.Response:
            answer = requests.post(f"{server.address}{path}?q={VALUE}", json=body, headers=headers, timeout=30)
            told.append(f"{answer.headers} {answer.text}")
            return answer

        between.trouble = lambda path: Trouble(200, vending) if path.endswith(NAME) else None
        (token, *_) = ask(PLAN, {**matching, "filter": True}).json()["plan-tasks"]
        assert ask(PLAN.replace("plan", "tasks"), {"plan-task": token}).ok
        assert ask(PLAN.replace("plan", "tasks"), {"plan-task": f"{token}x"}).status_code == 400
        assert ask(PLAN, matching, {"authorization": f"Bearer {CALLER}x"}).ok  # the guard's trouble asks nobody
        between.trouble = lambda path: None
        assert ask(PLAN, matching, {"authorization": f"Bearer {CALLER}x"}).status_code == 403
        assert ask(PLAN, {"snapshot-id": VALUE}).status_code == 400
        assert ask(PLAN, {"filter": {"type": VALUE, "term": "s", "value": VALUE}}).status_code in (400, 200)
        between.trouble = lambda path: Trouble(500, f"{CALLER} {OWN} {VALUE}".encode()) if path.endswith(NAME) else None
        assert ask(PLAN, matching).status_code == 503
        between.trouble = lambda path: None
        requests.get(f"{server.address}/v1/namespaces/{VALUE}/tables/{CALLER}", headers=caller, timeout=30)
        requests.get(f"{server.address}/v1/namespaces/%2e%2e{VALUE}", headers=caller, timeout=30)
        metrics = requests.get(f"{server.address}/metrics", timeout=30).text
    log = server.log.read_text()
    assert '"outcome": "completed"' in log
    assert 'outcome="completed"' in metrics
    for secret in (OWN, SEAL, CALLER, VENDED):
        assert [text for text in (log, metrics, *told) if secret in text] == []
    for private in (VALUE, NAME):
        assert [line for line in f"{log}\n{metrics}".splitlines() if private in line] == []
    between.readers = {}


def test_a_server_that_is_told_to_end_finishes_its_plans(between: Guard, tmp_path: Path) -> None:
    release, answers = threading.Event(), []

    def call() -> None:
        answers.append(requests.post(server.address + PLAN, json={}, timeout=60))

    with server_process(tmp_path, rest_settings(between.address, tmp_path), ENVIRONMENT) as server:
        between.trouble = lambda path: Trouble(wait=release) if path.endswith(NAME) else None
        caller = threading.Thread(target=call)
        caller.start()
        try:
            assert between.held.acquire(timeout=60)
            server.process.send_signal(signal.SIGTERM)
            pause = threading.Event()
            while requests.get(f"{server.address}/readyz", timeout=30).ok:
                pause.wait(0.01)
            between.trouble = lambda path: None
            assert requests.post(server.address + PLAN, json={}, timeout=60).ok  # who does not know yet is answered
            with pytest.raises(requests.ConnectionError):
                while True:
                    requests.get(f"{server.address}/healthz", timeout=30)
                    pause.wait(0.05)
        finally:
            release.set()
            caller.join()
        assert server.process.wait(60) == 0
    assert [answer.status_code for answer in answers] == [200]
    assert len(answers[0].json()["file-scan-tasks"]) == 3
