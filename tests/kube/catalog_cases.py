"""Addresses of catalogs that the API server and the operator take or refuse."""

from __future__ import annotations

import copy
from typing import Any

from tests.kube.cases import REST, WAREHOUSE, Case

_DATABASE = "postgresql://db.example:5432/catalog"
_VERIFIED = "sslmode=verify-full&sslrootcert=/skipstone/lake/ca.pem&application_name=skipstone"
_NO_PASSWORD = "catalog.uri may not contain a password: put it into the Secret of spec.credentialsSecretRef"
_NO_PARAMETER = "catalog.uri has a parameter that is not allowed"
_REST = "catalog.uri of a Rest catalog must be its http:// or https:// address, without user, password or parameters"


def _sql(name: str, uri: str, says: str = "") -> Case:
    return Case(name, "Warehouse", WAREHOUSE, {"catalog.uri": uri}, "spec.catalog.uri" if says else "", says)


def _rest_catalog() -> dict[str, Any]:
    """A copy for each case, which changes it."""
    return copy.deepcopy(REST)


def _rest(name: str, uri: str, says: str = "") -> Case:
    changes = {**_rest_catalog(), "catalog.uri": uri}
    return Case(name, "Warehouse", WAREHOUSE, changes, "spec.catalog.uri" if says else "", says)


_KEYS = {"credentialsSecretRef": {"name": "c", "keys": ["SKIPSTONE_CATALOG_TOKEN"]}}
_OAUTH = {"catalog.uri": "https://catalog", "catalog.properties": {"oauth2-server-uri": "http://login/token"}}


def _plaintext(name: str, changes: dict[str, Any], *, refused: bool = False) -> Case:
    at, says = ("spec.catalog.uri", "catalog.uri would carry credentials without encryption") if refused else ("", "")
    return Case(name, "Warehouse", WAREHOUSE, {**_rest_catalog(), **changes}, at, says)


_SIGNED = {"rest.sigv4-enabled": "true", "rest.signing-name": "glue", "rest.signing-region": "eu-central-1"}
_UNPLACED = {"rest.sigv4-enabled": "TRUE", "rest.signing-name": "glue"}


def _signed(name: str, changes: dict[str, Any], at: str = "", says: str = "") -> Case:
    changes = {**_rest_catalog(), "catalog.properties": dict(_SIGNED), **changes}
    return Case(name, "Warehouse", WAREHOUSE, changes, at, says)


def _keys(*names: str) -> dict[str, Any]:
    return {"credentialsSecretRef": {"name": "c", "keys": list(names)}}


CATALOGS_ACCEPTED = (
    _signed("signed-by-a-role", {}),
    _signed("signed-by-a-role-beside-other-keys", _keys("AWS_REGION")),
    _signed("signed-by-keys", _keys("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY")),
    _signed("signed-by-keys-of-a-session", _keys("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN")),
    _signed("not-signed-after-all", {"catalog.properties": {"rest.sigv4-enabled": "false"}}),
    _signed("half-of-the-keys-unsigned", {"catalog.properties": {}, **_keys("AWS_ACCESS_KEY_ID")}),
    _plaintext("credentials-over-https", {**_KEYS, "catalog.uri": "https://catalog"}),
    _plaintext("no-credentials-over-http", {}),
    _plaintext("other-keys-over-http", {"credentialsSecretRef": {"name": "c", "keys": ["AWS_REGION"]}}),
    _plaintext("credentials-over-http-by-wish", {**_KEYS, "catalog.allowPlaintextCredentials": True}),
    _sql("postgresql", _DATABASE),
    _sql("postgresql-with-user", "postgresql://me@db.example/catalog"),
    _sql("postgresql-with-tls", f"{_DATABASE}?{_VERIFIED}"),
    _rest("rest-below-a-path", "https://catalog.example:8181/api/team@catalog/"),
)
CATALOGS_REJECTED = (
    _signed(
        "signed-without-region",
        {"catalog.properties": _UNPLACED},
        "spec.catalog.properties",
        "catalog.properties needs rest.signing-region when rest.sigv4-enabled is true",
    ),
    _signed(
        "signed-by-half-of-the-keys",
        _keys("AWS_ACCESS_KEY_ID"),
        "spec.credentialsSecretRef.keys",
        "credentialsSecretRef.keys must hold AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY",
    ),
    _signed(
        "signed-by-a-token-alone",
        _keys("AWS_SESSION_TOKEN"),
        "spec.credentialsSecretRef.keys",
        "credentialsSecretRef.keys must hold AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY",
    ),
    _plaintext("credentials-over-http", _KEYS, refused=True),
    _plaintext("credentials-over-http-to-the-oauth-server", {**_KEYS, **_OAUTH}, refused=True),
    _sql("password-with-slash", "postgresql://me:se/cret@db/x", _NO_PASSWORD),
    _sql("password-without-user", "postgresql://:secret@db/x", _NO_PASSWORD),
    _sql("password-as-parameter", f"{_DATABASE}?password=secret", _NO_PARAMETER),
    _sql("password-behind-a-good-parameter", f"{_DATABASE}?sslmode=require&password=secret", _NO_PARAMETER),
    _sql("password-written-otherwise", f"{_DATABASE}?p%61ssword=secret", _NO_PARAMETER),
    _sql("password-behind-a-second-mark", f"{_DATABASE}?sslcert=x?password=secret", _NO_PARAMETER),
    _sql("token-as-parameter", f"{_DATABASE}?token=secret", _NO_PARAMETER),
    _sql("key-password-as-parameter", f"{_DATABASE}?sslpassword=secret", _NO_PARAMETER),
    _sql("tls-mode-misspelt", f"{_DATABASE}?sslmode=verify_full", _NO_PARAMETER),
    _sql("fragment", f"{_DATABASE}#secret", _NO_PARAMETER),
    _sql("sqlite-with-parameter", "sqlite:////skipstone/lake/c.db?uri=true", _NO_PARAMETER),
    _rest("rest-with-password", "https://me:secret@catalog.example", _REST),
    _rest("rest-with-user", "https://token@catalog.example/v1", _REST),
    _rest("rest-with-token", "https://catalog.example/?token=secret", _REST),
    _rest("rest-with-token-and-no-path", "https://catalog.example?token=secret", _REST),
)
