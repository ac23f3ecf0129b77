"""Opens the API server for one command."""

from __future__ import annotations

from skipstone_cli.cluster.api import EVERYWHERE, Api
from skipstone_cli.cluster.kubeconfig import Access, load_login
from skipstone_cli.cluster.transport import Transport
from skipstone_cli.kinds import require_name


def open_api(access: Access, *, everywhere: bool = False, patient: bool = True) -> Api:
    """The API server that the command line and the kubeconfig name. Raises CliError.

    ``patient``: ask again after a lost connection, and when the server is busy.
    """
    login = load_login(access)
    namespace = EVERYWHERE if everywhere else require_name(login.namespace, "a namespace")
    return Api(Transport(login, patient=patient), namespace)
