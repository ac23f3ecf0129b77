"""Which API server to ask, and as whom: the kubeconfig as kubectl reads it, or the account of a pod.

Called by ``opening``. The Kubernetes client loads credentials; what kubectl does beside that is here.
"""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

import urllib3
import yaml
from kubernetes import config
from kubernetes.client import Configuration
from kubernetes.client.exceptions import OpenApiException
from kubernetes.config import kube_config

from skipstone_cli.documents import DocumentLoader
from skipstone_cli.errors import CliError
from skipstone_cli.reading import JsonObject, entries_of, field_of, text_of, texts_of

ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
#: Where kubectl looks when $KUBECONFIG is not set.
DEFAULT_FILE = "~/.kube/config"
MAPS = ("clusters", "users", "contexts")
#: Fields that hold paths, which are relative to the file that they are in.
PATHS = ("certificate-authority", "client-certificate", "client-key", "tokenFile")
#: Fields whose values are text, by part; kubectl refuses numbers and lists there.
TEXTS = {
    "clusters": ("server", "certificate-authority", "certificate-authority-data", "proxy-url", "tls-server-name"),
    "users": (
        *("token", "tokenFile", "username", "password", "client-certificate", "client-certificate-data", "client-key"),
        *("client-key-data", "as", "as-uid"),
    ),
    "contexts": ("cluster", "user", "namespace"),
}
CERTIFICATES = ("certificate-authority", "certificate-authority-data")
#: Characters of a header's name beside letters and digits.
TOKEN = "!#$&'*+-.^_`|~"
#: What the client raises for a kubeconfig, a credential plugin or an issuer of tokens that does not work.
LOADING = (
    config.ConfigException, OpenApiException, urllib3.exceptions.HTTPError, OSError, ValueError, KeyError, TypeError,
    AttributeError, IndexError,
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Access:
    """Options of the command line for the API server. Empty: as in the kubeconfig.

    ``local``: the folder of a local API server, in the place of ``kubeconfig`` and ``context``.
    """

    kubeconfig: str = ""
    context: str = ""
    namespace: str = ""
    local: str = ""
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
    documents = [document for path in files if (document := _read(path)) is not None]
    if not documents:
        return _account_login(access, environment, files)
    merged = _merged(documents)
    context = access.context or text_of(merged, "current-context")
    if not context:
        raise CliError("the kubeconfig has no current context: run 'kubectl config use-context' or pass --context")
    return _file_login(access, merged, context)


def _merged(documents: Sequence[JsonObject]) -> JsonObject:
    """One kubeconfig out of several: what the first file says counts, for each name and for the current context."""
    merged: JsonObject = {"current-context": _first(text_of(document, "current-context") for document in documents)}
    for part in MAPS:
        named: dict[str, JsonObject] = {}
        for entry in (entry for document in documents for entry in entries_of(document, part)):
            named.setdefault(entry["name"], entry)
        merged[part] = list(named.values())
    return merged


def _first(texts: Iterable[str]) -> str:
    return next((text for text in texts if text), "")


def _existing_files(access: Access, environment: Mapping[str, str]) -> tuple[str, ...]:
    """The files to read. One that is named by --kubeconfig must exist; those of $KUBECONFIG may be missing."""
    if access.kubeconfig:
        path = _expanded(access.kubeconfig)
        if not _exists(path):
            raise CliError(f"the kubeconfig {access.kubeconfig} does not exist: correct --kubeconfig")
        return (str(path),)
    listed = environment.get("KUBECONFIG") or DEFAULT_FILE
    paths = dict.fromkeys(_expanded(entry) for entry in listed.split(os.pathsep) if entry)
    return tuple(str(path) for path in paths if _exists(path))


def _expanded(text: str) -> Path:
    try:
        return Path(text).expanduser()
    except RuntimeError:
        # There is no such user.
        return Path(text)


def _exists(path: Path) -> bool:
    try:
        return path.exists()
    except OSError:
        # No file can have such a name, or its folder may not be looked into.
        return False


def _read(path: str) -> JsonObject | None:
    """The document in a file; None when it is empty."""
    try:
        document = yaml.load(Path(path).read_text(encoding="utf-8"), Loader=DocumentLoader)
    except (OSError, ValueError, RecursionError, yaml.YAMLError) as error:
        raise CliError(f"the kubeconfig {path} cannot be read: {_first_line(error)}") from error
    if document is None:
        return None
    if not isinstance(document, dict) or any(not _is_named_list(document.get(name)) for name in MAPS):
        raise CliError(f"the kubeconfig {path} is not a kubeconfig: {', '.join(MAPS)} must be lists of named entries")
    for part in MAPS:
        for entry in entries_of(document, part):
            _require_texts(path, part, entry)
    return {
        **document,
        **{part: [_absolute(part, item, Path(path)) for item in entries_of(document, part)] for part in MAPS},
    }


def _require_texts(path: str, part: str, entry: JsonObject) -> None:
    """Raise CliError for what is not text and must be: it would be left out, and another user or namespace be meant."""
    kind = part.removesuffix("s")
    inner = entry.get(kind)
    if inner is not None and not isinstance(inner, dict):
        raise CliError(
            f"the kubeconfig {path} has no fields in {kind} {entry['name']!r}: write names with values there"
        )
    odd = [name for name in TEXTS[part] if not isinstance(field_of(inner, name), str | None)]
    groups = field_of(inner, "as-groups") or []
    if not isinstance(groups, list) or not all(isinstance(group, str) for group in groups):
        odd.append("as-groups")
    if odd:
        raise CliError(f"the kubeconfig {path} has a wrong {odd[0]} in {kind} {entry['name']!r}: write it as text")


def _absolute(part: str, entry: JsonObject, file: Path) -> JsonObject:
    """An entry of ``file`` whose paths do not depend on the file, and without what is empty or overruled."""
    inner = entry.get(part.removesuffix("s"))
    if not isinstance(inner, dict):
        return {**entry, part.removesuffix("s"): {}}
    kept = {name: value for name, value in inner.items() if value not in (None, "")}
    if "tokenFile" in kept:
        kept.pop("token", None)
    for name in PATHS:
        if isinstance(kept.get(name), str):
            kept[name] = str(file.absolute().parent / kept[name])
    plugin = kept.get("exec")
    if isinstance(plugin, dict) and os.sep in text_of(plugin, "command"):
        kept["exec"] = {**plugin, "command": str(file.absolute().parent / text_of(plugin, "command"))}
    return {**entry, part.removesuffix("s"): kept}


def _is_named_list(value: object) -> bool:
    return value is None or (
        isinstance(value, list) and all(isinstance(item, dict) and isinstance(item.get("name"), str) for item in value)
    )


def _first_line(error: Exception) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0]


def _file_login(access: Access, merged: JsonObject, context: str) -> Login:
    chosen = _named(merged, "contexts", context)
    if chosen is None:
        known = ", ".join(sorted(text_of(entry, "name") for entry in entries_of(merged, "contexts")))
        raise CliError(f"the kubeconfig has no context {context!r}: use one of {known or 'those that you add'}")
    cluster = _named(merged, "clusters", text_of(chosen, "context", "cluster"))
    if cluster is None or not text_of(cluster, "cluster", "server"):
        raise CliError(f"context {context!r} of the kubeconfig names no cluster with a server: correct the kubeconfig")
    name = text_of(chosen, "context", "user")
    user = _named(merged, "users", name)
    if name and user is None:
        raise CliError(f"context {context!r} names user {name!r}, which the kubeconfig lacks: correct the kubeconfig")
    configuration = _new_configuration()
    with _complaints() as complaints:
        try:
            client: Any = kube_config
            loader = client.KubeConfigLoader(_with_scheme(merged, cluster), active_context=context, config_base_path="")
            loader.load_and_set(configuration)
        except LOADING as error:
            raise CliError(f"the kubeconfig cannot be used with context {context!r}: {_first_line(error)}") from error
    if field_of(user, "user", "exec") and not (configuration.api_key or configuration.cert_file):
        why = "; ".join(complaints) or "it gave no reason"
        raise CliError(f"the credential plugin of the kubeconfig gave no credentials: {why}")
    namespace = access.namespace or text_of(chosen, "context", "namespace") or "default"
    return Login(configuration=configuration, namespace=namespace, headers=_impersonation(access, user))


def _with_scheme(merged: JsonObject, cluster: JsonObject) -> JsonObject:
    """The kubeconfig with a scheme in the cluster's address: https where certificates are spoken of, else http."""
    inner = cluster["cluster"]
    secure = any(name in inner for name in (*CERTIFICATES, "insecure-skip-tls-verify"))
    server = inner["server"] if "://" in inner["server"] else f"{'https' if secure else 'http'}://{inner['server']}"
    if not re.match("https?://[^/?#]", server):
        raise CliError(f"the kubeconfig's server {inner['server']!r} is not an address: write https://HOST:PORT")
    changed = {**cluster, "cluster": {**inner, "server": server}}
    return {**merged, "clusters": [changed if entry is cluster else entry for entry in merged["clusters"]]}


def _named(merged: JsonObject, part: str, name: str) -> JsonObject | None:
    """The entry of that name."""
    return next((entry for entry in entries_of(merged, part) if entry["name"] == name), None)


def _impersonation(access: Access, user: JsonObject | None) -> tuple[tuple[str, str], ...]:
    """Headers that say as whom to act. What is on the command line replaces what the kubeconfig says."""
    if access.as_groups and not access.as_user:
        raise CliError("--as-group is only for use with --as: add --as USER")
    acting = access.as_user or text_of(user, "user", "as")
    if not acting:
        return ()
    groups = access.as_groups if access.as_user else texts_of(user, "user", "as-groups")
    headers = [("Impersonate-User", acting), *(("Impersonate-Group", group) for group in groups)]
    if not access.as_user:
        headers += _other_identity(user)
    for name, value in headers:
        if not value.isprintable():
            raise CliError(f"{name} {value!r} cannot be sent: remove the control characters")
    return tuple(headers)


def _other_identity(user: JsonObject | None) -> Iterator[tuple[str, str]]:
    """Yield the fields of impersonation in the kubeconfig, beside name and groups."""
    if uid := text_of(user, "user", "as-uid"):
        yield ("Impersonate-Uid", uid)
    extra = field_of(user, "user", "as-user-extra")
    for name in extra if isinstance(extra, dict) else ():
        yield from ((f"Impersonate-Extra-{quote(str(name), safe=TOKEN)}", text) for text in texts_of(extra, name))


def _account_login(access: Access, environment: Mapping[str, str], files: tuple[str, ...]) -> Login:
    """The account of the pod that this runs in."""
    if access.context:
        raise CliError(f"there is no kubeconfig with a context {access.context!r}: set KUBECONFIG or pass --kubeconfig")
    looked = ", ".join(files) or environment.get("KUBECONFIG") or DEFAULT_FILE
    if not environment.get("KUBERNETES_SERVICE_HOST") or not (ACCOUNT / "token").is_file():
        raise CliError(
            f"no API server is configured: {looked} is empty or missing, outside of a pod; set "
            "KUBECONFIG, or name a folder of this machine with --local"
        )
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
        self.messages: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        """Keep one message."""
        self.messages.append(record.getMessage().strip())


@contextmanager
def _complaints() -> Iterator[list[str]]:
    """Collect the client's log: its only report of a failed credential plugin."""
    handler, root = _Collecting(), logging.getLogger()
    root.addHandler(handler)
    try:
        yield handler.messages
    finally:
        root.removeHandler(handler)
