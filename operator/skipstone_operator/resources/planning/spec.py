"""``spec.planning`` of a Warehouse: the server that plans scans for engines by Iceberg's REST protocol.

Imported by the Warehouse, by reconcilers and by the CRD generator. Data only.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Annotated, Any, ClassVar

from skipstone_core import signing
from skipstone_core.catalog_uris import sends_plaintext
from skipstone_core.contract.planning import PlanningMode, PlanningVerify
from skipstone_core.contract.requests import CatalogType

from skipstone_operator.resources.common import object_name
from skipstone_operator.resources.rules.amounts import CPU, CPU_HELP, WHOLE_MEMORY, WHOLE_MEMORY_HELP, read_size
from skipstone_operator.resources.rules.limits import IS_SIGNED
from skipstone_operator.resources.rules.markers import Doc, Rule
from skipstone_operator.resources.rules.peers import peer

MAX_REPLICAS = 64
MAX_PEERS = 32
#: Replicas when the spec does not say; an SQLite catalog is a file that is served where its volume is.
REPLICAS, SQLITE_REPLICAS = 2, 1


#: The API server judges defaults before those inside of them are filled in.
_THERE = "!has(self.requests) || !has(self.requests.{0}) || !has(self.limits) || !has(self.limits.{0}) || "


def _cpu(text: str) -> Fraction:
    return Fraction(text[:-1]) / 1000 if text.endswith("m") else Fraction(text)


@dataclass(frozen=True, kw_only=True)
class ServerRequests:
    "The resources that a node reserves for a replica."

    cpu: Annotated[
        str,
        Doc(
            "Cores, such as 250m or 2.", max_length=12, pattern=CPU, help=f"planning.resources.requests.cpu {CPU_HELP}"
        ),
    ] = "250m"
    memory: Annotated[
        str,
        Doc(
            "Memory, such as 512Mi.",
            max_length=12,
            pattern=WHOLE_MEMORY,
            help=f"planning.resources.requests.memory {WHOLE_MEMORY_HELP}",
        ),
    ] = "512Mi"


@dataclass(frozen=True, kw_only=True)
class ServerLimits:
    "The maximum that a replica may use."

    cpu: Annotated[
        str | None,
        Doc(
            "Cores; no limit when absent.",
            max_length=12,
            pattern=CPU,
            help=f"planning.resources.limits.cpu {CPU_HELP}",
        ),
    ] = None
    memory: Annotated[
        str,
        Doc(
            "Memory, such as 2Gi. Caches take what the plans in progress leave of it.",
            max_length=12,
            pattern=WHOLE_MEMORY,
            help=f"planning.resources.limits.memory {WHOLE_MEMORY_HELP}",
        ),
    ] = "2Gi"


@dataclass(frozen=True, kw_only=True)
class ServerResources:
    """How much a replica may use."""

    RULES: ClassVar[tuple[Rule, ...]] = (
        Rule(
            holds=lambda given: read_size(given.requests.memory) <= read_size(given.limits.memory),
            rule=_THERE.format("memory")
            + "quantity(self.requests.memory).compareTo(quantity(self.limits.memory)) <= 0",
            message="planning.resources.requests.memory may not be more than planning.resources.limits.memory: lower "
            "the request or raise the limit",
            field_path=".requests.memory",
        ),
        Rule(
            holds=lambda given: given.limits.cpu is None or _cpu(given.requests.cpu) <= _cpu(given.limits.cpu),
            rule=_THERE.format("cpu") + "quantity(self.requests.cpu).compareTo(quantity(self.limits.cpu)) <= 0",
            message="planning.resources.requests.cpu may not be more than planning.resources.limits.cpu: lower the "
            "request, or raise or remove the limit",
            field_path=".requests.cpu",
        ),
    )

    requests: Annotated[ServerRequests, Doc("The resources that a node reserves for a replica.")] = ServerRequests()
    limits: Annotated[ServerLimits, Doc("The maximum that a replica may use.")] = ServerLimits()


@dataclass(frozen=True, kw_only=True)
class TokensRef:
    """A key of a Secret that holds the tokens of callers."""

    name: Annotated[str, object_name("Name of the Secret, in the same namespace.", "planning.tokensSecretRef.name")]
    key: Annotated[
        str,
        Doc(
            "Key of the Secret that holds the tokens, with blanks or line breaks between them.",
            min_length=1,
            max_length=253,
            pattern="^[-._a-zA-Z0-9]+$",
            help="planning.tokensSecretRef.key may hold letters, digits, '-', '_' and '.' only: write for example "
            "tokens",
        ),
    ] = "tokens"


@dataclass(frozen=True, kw_only=True)
class PlanningSpec:
    """How the server runs that plans scans."""

    replicas: Annotated[
        int | None,
        Doc(
            f"Number of replicas; {REPLICAS} when absent, {SQLITE_REPLICAS} with an SQLite catalog.",
            minimum=1,
            maximum=MAX_REPLICAS,
        ),
    ] = None
    mode: Annotated[
        PlanningMode,
        Doc(
            "The clients for which the server plans. OptIn: those that set scan-planning-mode to server. Default: all "
            "that do not set it to client."
        ),
    ] = PlanningMode.OPT_IN
    verify: Annotated[
        PlanningVerify,
        Doc(
            "Sample: for a share of plans, the server reads some of the files that were excluded, and an alert "
            "reports a missed row."
        ),
    ] = PlanningVerify.OFF
    tokens_secret_ref: Annotated[
        TokensRef | None,
        Doc("The bearer tokens of callers, for an Sql catalog. Callers of a Rest catalog use its own tokens."),
    ] = None
    allow_plaintext_tokens: Annotated[
        bool,
        Doc(
            "Whether the server may send tokens of callers to a Rest catalog over http://, where others on the "
            "network can read them."
        ),
    ] = False
    upstream_timeout_seconds: Annotated[
        int, Doc("Timeout of requests to a Rest catalog, in seconds.", minimum=1, maximum=600)
    ] = 30
    service_account_name: Annotated[
        str | None,
        object_name(
            "ServiceAccount of the server's pods, such as one with a cloud role; when absent, one of its own without "
            "rights. Its token is not mounted.",
            "planning.serviceAccountName",
        ),
    ] = None
    allow_from: Annotated[
        tuple[Mapping[str, Any], ...] | None,
        Doc(
            "Clients that may connect to the server, for plans and for metrics, as peers of a NetworkPolicy; all when "
            "absent. The network of the cluster must enforce policies.",
            min_items=1,
            max_items=MAX_PEERS,
            item=peer("planning.allowFrom"),
        ),
    ] = None
    resources: Annotated[ServerResources, Doc("How much a replica may use.")] = ServerResources()


def is_file_catalog(catalog: Any) -> bool:
    """Return whether the catalog is an SQLite file in the Warehouse's volume."""
    return catalog.type == CatalogType.SQL and (not catalog.uri or catalog.uri.startswith("sqlite"))


def replicas_of(spec: PlanningSpec, catalog: Any) -> int:
    """How many replicas are wanted."""
    if spec.replicas is not None:
        return spec.replicas
    return SQLITE_REPLICAS if is_file_catalog(catalog) else REPLICAS


def _is_signed(spec: Any) -> bool:
    return spec.catalog.type == CatalogType.REST and signing.is_signed(spec.catalog.properties)


def _sends_tokens_plainly(spec: Any) -> bool:
    return spec.catalog.type == CatalogType.REST and sends_plaintext(spec.catalog.uri, {})


#: Rules over the spec of a Warehouse: which catalogs can be served, and how.
PLANNING_RULES = (
    Rule(
        holds=lambda spec: spec.planning is None or not _is_signed(spec),
        rule=f"!has(self.planning) || self.catalog.type != 'Rest' || !({IS_SIGNED.format('self.catalog.')})",
        message=f"planning cannot be used when catalog.properties has {signing.ENABLED}, since a signature holds for "
        "the catalog's own host only: remove planning, or use an address of the catalog that takes tokens",
        field_path=".planning",
    ),
    Rule(
        holds=lambda spec: (
            spec.planning is None or spec.catalog.type != CatalogType.SQL or spec.planning.tokens_secret_ref is not None
        ),
        rule="!has(self.planning) || self.catalog.type != 'Sql' || has(self.planning.tokensSecretRef)",
        message="planning.tokensSecretRef is required for an Sql catalog, which has no access rules of its own: name "
        "a Secret that holds the tokens of those who may read all tables",
        field_path=".planning",
    ),
    Rule(
        holds=lambda spec: (
            spec.planning is None or spec.catalog.type != CatalogType.REST or spec.planning.tokens_secret_ref is None
        ),
        rule="!has(self.planning) || self.catalog.type != 'Rest' || !has(self.planning.tokensSecretRef)",
        message="planning.tokensSecretRef is for Sql catalogs only, since a Rest catalog judges the tokens of its "
        "callers itself: remove it",
        field_path=".planning.tokensSecretRef",
    ),
    Rule(
        holds=lambda spec: (
            spec.planning is None or not is_file_catalog(spec.catalog) or (spec.planning.replicas or 1) == 1
        ),
        rule="!has(self.planning) || !has(self.planning.replicas) || self.planning.replicas == 1 || "
        "self.catalog.type != 'Sql' || (has(self.catalog.uri) && self.catalog.uri.startsWith('postgresql'))",
        message="planning.replicas must be 1 with an SQLite catalog, which is a file in one volume: set 1, or use "
        "PostgreSQL or a Rest catalog",
        field_path=".planning.replicas",
    ),
    Rule(
        holds=lambda spec: (
            spec.planning is None or spec.planning.allow_plaintext_tokens or not _sends_tokens_plainly(spec)
        ),
        rule="!has(self.planning) || self.catalog.type != 'Rest' || (has(self.planning.allowPlaintextTokens) && "
        "self.planning.allowPlaintextTokens) || !has(self.catalog.uri) || !self.catalog.uri.startsWith('http:')",
        message="planning would send tokens of callers to catalog.uri without encryption: use https://, or set "
        "planning.allowPlaintextTokens on a trusted network",
        field_path=".planning",
    ),
)
