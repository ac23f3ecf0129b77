"""Which API server to ask, and as whom: the kubeconfig as kubectl reads it, or the account of a pod.

Called by ``opening``. The Kubernetes client loads credentials; what kubectl does beside that is here.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from kubernetes import config
from kubernetes.client import Configuration
from kubernetes.config import kube_config

from skipstone_cli.errors import CliError
from skipstone_cli.reading import JsonObject, entries_of, field_of, text_of, texts_of

ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
#: Where kubectl looks when $KUBECONFIG is not set.
DEFAULT_FILE = "~/.kube/config"
MAPS = ("clusters", "users", "contexts")


@dataclass(frozen=True, kw_only=True)
class Access:
    """What the user says about the API server on the command line. Empty: as the kubeconfig says."""

    kubeconfig: str = ""
    context: str = ""
    namespace: str = ""
    as_user: str = ""
    as_groups: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Login:
    """Where to send requests and as whom. ``headers``: pairs that every request carries; a name may repeat."""

    configuration: Configuration
    namespace: str
    headers: tuple[tuple[str, str], ...] = ()


def load_login(access: Access, environment: Mapping[str, str] = os.environ) -> Login:
    """The login that ``access`` and the environment give. Raises CliError in one sentence."""
    files = _existing_files(access, environment)
    documents = {path: document for path in files if (document := _read(path)) is not None}
    if not documents:
        return _account_login(access, environment, files)
    current = next((found for one in documents.values() if (found := text_of(one, "current-context"))), "")
    context = access.context or current
    if not context:
        raise CliError("the kubeconfig has no current context: run 'kubectl config use-context' or pass --context")
    return _file_login(access, documents, context)


def _existing_files(access: Access, environment: Mapping[str, str]) -> tuple[str, ...]:
    """The files to read. One that is named by --kubeconfig must exist; those of $KUBECONFIG may be missing."""
    if access.kubeconfig:
        if not Path(access.kubeconfig).expanduser().exists():
            raise CliError(f"the kubeconfig {access.kubeconfig} does not exist: correct --kubeconfig")
        return (str(Path(access.kubeconfig).expanduser()),)
    listed = environment.get("KUBECONFIG") or DEFAULT_FILE
    paths = dict.fromkeys(str(Path(one).expanduser()) for one in listed.split(os.pathsep) if one)
    return tuple(path for path in paths if Path(path).exists())


def _read(path: str) -> JsonObject | None:
    """The document in a file; None when it is empty."""
    try:
        found = yaml.safe_load(Path(path).read_text(encoding="utf-8"))
    except (OSError, ValueError, yaml.YAMLError) as error:
        raise CliError(f"the kubeconfig {path} cannot be read: {_first_line(error)}") from error
    if found is None:
        return None
    if not isinstance(found, dict) or any(not _is_named_list(found.get(name)) for name in MAPS):
        raise CliError(f"the kubeconfig {path} is no kubeconfig: {', '.join(MAPS)} must be lists of named entries")
    return found


def _is_named_list(value: object) -> bool:
    return value is None or (
        isinstance(value, list) and all(isinstance(one, dict) and isinstance(one.get("name"), str) for one in value)
    )


def _first_line(error: Exception) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0]


def _file_login(access: Access, documents: Mapping[str, JsonObject], context: str) -> Login:
    chosen = _named(documents, "contexts", context)
    if chosen is None:
        known = ", ".join(
            sorted({text_of(one, "name") for doc in documents.values() for one in entries_of(doc, "contexts")})
        )
        raise CliError(f"the kubeconfig has no context {context!r}: use one of {known or 'those that you add'}")
    user = _named(documents, "users", text_of(chosen, "context", "user")) or {}
    cluster = _named(documents, "clusters", text_of(chosen, "context", "cluster"))
    if not text_of(cluster, "cluster", "server"):
        raise CliError(f"context {context!r} of the kubeconfig names no cluster with a server: correct the kubeconfig")
    configuration = _new_configuration()
    with _complaints() as said:
        try:
            client: Any = kube_config
            merged = client.KubeConfigMerger(os.pathsep.join(documents)).config
            client.KubeConfigLoader(merged, active_context=context, config_base_path=None).load_and_set(configuration)
        except (config.ConfigException, OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise CliError(f"the kubeconfig cannot be used with context {context!r}: {_first_line(error)}") from error
    if field_of(user, "user", "exec") and not (configuration.api_key or configuration.cert_file):
        raise CliError(
            f"the credential plugin of the kubeconfig gave no credentials: {'; '.join(said) or 'no reason given'}"
        )
    namespace = access.namespace or text_of(chosen, "context", "namespace") or "default"
    return Login(configuration=configuration, namespace=namespace, headers=_impersonation(access, user.get("user")))


def _named(documents: Mapping[str, JsonObject], part: str, name: str) -> JsonObject | None:
    """The entry of that name; the first file that has it counts."""
    found = (one for doc in documents.values() for one in entries_of(doc, part) if one["name"] == name)
    return next(found, None)


def _impersonation(access: Access, user: object) -> tuple[tuple[str, str], ...]:
    """Headers that say as whom to act. What is on the command line replaces what the kubeconfig says."""
    if access.as_groups and not access.as_user:
        raise CliError("--as-group is only for use with --as: add --as USER")
    if access.as_user:
        return (("Impersonate-User", access.as_user), *(("Impersonate-Group", one) for one in access.as_groups))
    acting = text_of(user, "as")
    if not acting:
        return ()
    extra = field_of(user, "as-user-extra")
    return (
        ("Impersonate-User", acting),
        *((("Impersonate-Uid", uid),) if (uid := text_of(user, "as-uid")) else ()),
        *(("Impersonate-Group", one) for one in texts_of(user, "as-groups")),
        *(
            (f"Impersonate-Extra-{name}", value)
            for name in (extra if isinstance(extra, dict) else {})
            for value in texts_of(extra, name)
        ),
    )


def _account_login(access: Access, environment: Mapping[str, str], files: tuple[str, ...]) -> Login:
    """The account of the pod that this runs in."""
    if access.context:
        raise CliError(f"there is no kubeconfig with a context {access.context!r}: set KUBECONFIG or pass --kubeconfig")
    looked = ", ".join(files) or environment.get("KUBECONFIG") or DEFAULT_FILE
    if not environment.get("KUBERNETES_SERVICE_HOST") or not (ACCOUNT / "token").is_file():
        raise CliError(f"no API server is configured: {looked} is empty or missing, and this is no pod; set KUBECONFIG")
    configuration = _new_configuration()
    try:
        config.load_incluster_config(client_configuration=configuration)  # type: ignore[no-untyped-call]
        own = (ACCOUNT / "namespace").read_text().strip() if (ACCOUNT / "namespace").is_file() else ""
    except (config.ConfigException, OSError, ValueError) as error:
        raise CliError(f"the account of this pod cannot be used: {_first_line(error)}") from error
    return Login(
        configuration=configuration,
        namespace=access.namespace or own or "default",
        headers=_impersonation(access, None),
    )


def _new_configuration() -> Configuration:
    made = Configuration()
    made.connection_pool_maxsize = 1
    return made


class _Collecting(logging.Handler):
    """Keeps what is logged."""

    def __init__(self) -> None:
        super().__init__()
        self.said: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        """Keep one message."""
        self.said.append(record.getMessage().strip())


@contextmanager
def _complaints() -> Iterator[list[str]]:
    """What the client logs meanwhile, which is all that it says about a credential plugin that failed."""
    handler, root = _Collecting(), logging.getLogger()
    root.addHandler(handler)
    try:
        yield handler.said
    finally:
        root.removeHandler(handler)
