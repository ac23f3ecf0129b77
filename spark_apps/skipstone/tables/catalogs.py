"""Opens catalogs and loads tables from them with the identity checks that every run needs.

Called by the runs and by the query planner. Credentials come from the environment only.
Must not create or change tables.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from urllib.parse import quote

from pydantic import ValidationError as PydanticValidationError
from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.exceptions import (
    NoSuchNamespaceError,
    NoSuchTableError,
    RESTError,
    ValidationError,
)
from pyiceberg.io import FileIO, InputFile, OutputFile
from pyiceberg.table import CommitTableResponse, Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.update import TableRequirement, TableUpdate
from pyiceberg.typedef import Properties
from pyiceberg.utils.config import Config
from requests import RequestException
from skipstone_core import signing
from skipstone_core.catalog_uris import PLAINTEXT, find_uri_problem, sends_plaintext
from skipstone_core.contract.requests import CatalogRef, CatalogType, TableRef, WarehouseRef
from skipstone_core.errors import BadSpec, DependencyUnavailable
from skipstone_core.reasons import Reason
from sqlalchemy import Engine
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import (
    ArgumentError,
    IntegrityError,
    NoSuchModuleError,
    OperationalError,
    ProgrammingError,
    SQLAlchemyError,
)

from skipstone.caches import ByteCache
from skipstone.compat.lineage.metadata import find_lost, is_kept_in_part, writable
from skipstone.compat.pyiceberg import HookedSqlCatalog, SigningKeys
from skipstone.scrubbing import keep_secret
from skipstone.storage.buckets.apart import environment_of, own_keys
from skipstone.storage.buckets.kind import kind_of
from skipstone.storage.buckets.vending import Vending, vended_secrets
from skipstone.storage.opening import storage_properties
from skipstone.tables.answers.branches import main_of, on_branch
from skipstone.tables.answers.locks import find_lock, watch_locks
from skipstone.tables.answers.reading import find_validation, first_line, is_damaged
from skipstone.tables.answers.refusals import tell_trouble
from skipstone.tables.answers.restcatalog import AnsweredRestCatalog
from skipstone.tables.clocks import in_order
from skipstone.tables.decoding.completing import completed
from skipstone.tables.decoding.metadatafiles import DamagedMetadataError, read_metadata, read_stored, write_metadata
from skipstone.tables.storage import CATALOG_PROPERTIES, DurableFileIO, storage_io

USER_VARIABLE = "SKIPSTONE_CATALOG_USER"
PASSWORD_VARIABLE = "SKIPSTONE_CATALOG_PASSWORD"
CREDENTIAL_VARIABLE = "SKIPSTONE_CATALOG_CREDENTIAL"
TOKEN_VARIABLE = "SKIPSTONE_CATALOG_TOKEN"
SQLITE_FILE = "catalog.db"
#: How long a writer waits for SQLite's lock before it gives up.
SQLITE_BUSY_SECONDS = "60"
CONNECT_SECONDS = "10"
#: Without these, a driver whose connection was cut without a word waits for hours for what became of its commit.
POSTGRES_DEFAULTS: Mapping[str, str] = {
    "connect_timeout": CONNECT_SECONDS,
    "keepalives_idle": "30",
    "keepalives_interval": "10",
    "keepalives_count": "3",
    "tcp_user_timeout": "60000",
}
#: How often a database is opened that others fill with the catalog's tables at the same moment.
OPENINGS = 3
#: The format version of tables that are made here, and of tables whose rows have no ids.
WRITABLE_FORMAT = 2
#: How often a table is looked up whose metadata file is gone: writers may delete the old ones with every commit.
METADATA_READS = 5
_URI_FIELD = "spec.catalog.uri"
_SCHEME, _DRIVER_SCHEME = "postgresql://", "postgresql+psycopg2://"
_PROPERTIES_FIELD = f"spec.{signing.PROPERTIES_FIELD}"


def open_catalog(warehouse: WarehouseRef) -> Catalog:
    """Open the catalog of ``warehouse``; its default table locations are under ``warehouse.root``.

    Raises BadSpec for a uri or property that cannot work, DependencyUnavailable (CATALOG_UNAVAILABLE) when the
    catalog does not answer.
    """
    reference = warehouse.catalog
    with catalog_answers(reference.name):
        if reference.type is CatalogType.REST:
            return _open_rest(warehouse, environment_of(warehouse))
        return _open_sql(warehouse, environment_of(warehouse), OwnSqlCatalog)


def open_known_catalog(warehouse: WarehouseRef, kind: type[OwnSqlCatalog] | None = None) -> Catalog:
    """Open a catalog that was used before, without making anything: an empty volume or database is none.

    ``kind``: of an Sql catalog. Raises as ``open_catalog`` does, and DependencyUnavailable (CATALOG_UNPROVEN) when
    there is no SQLite file.
    """
    if warehouse.catalog.type is CatalogType.REST:
        return open_catalog(warehouse)
    with catalog_answers(warehouse.catalog.name):
        return _open_sql(warehouse, environment_of(warehouse), kind or OwnSqlCatalog, is_known=True)


class NotSentError(OSError):
    """A commit ended before the catalog was asked to swap: nothing landed and nothing will."""


class CatalogLockedError(NotSentError):
    """The catalog's database was locked until the commit gave up; its transaction was rolled back."""


class OwnSqlCatalog(HookedSqlCatalog):
    """PyIceberg's SQL catalog, which tells a commit that was never sent from one that got no answer.

    Times in metadata that it writes do not go back, whatever the clock says. It keeps the password to its
    engine: what it hands out travels to executors.
    """

    def __init__(self, name: str, **properties: str) -> None:
        """``properties`` as PyIceberg takes them."""
        super().__init__(name, **properties)
        self.properties = {**self.properties, "uri": make_url(properties["uri"]).render_as_string()}

    def file_io(self, properties: Properties, location: str | None) -> FileIO:
        """A FileIO that knows nothing but how to reach the storage."""
        return storage_io({**self.properties, **properties}, location)

    def adjusted(self, before: TableMetadata, after: TableMetadata) -> TableMetadata:
        """``after`` with times that do not go back."""
        return in_order(before, after)

    def watch(self, engine: Engine) -> None:
        """See ``watch_locks``."""
        watch_locks(engine, float(SQLITE_BUSY_SECONDS))

    def commit_table(
        self, table: Table, requirements: tuple[TableRequirement, ...], updates: tuple[TableUpdate, ...]
    ) -> CommitTableResponse:
        """As PyIceberg's. Raises CatalogLockedError for a database that was locked for too long."""
        try:
            return super().commit_table(table, requirements, updates)
        except OperationalError as error:
            if held := find_lock(error):
                raise CatalogLockedError(f"The catalog {self.name!r} did not answer: {held}.") from error
            raise

    @staticmethod
    def metadata_in(file: InputFile) -> TableMetadata:
        """See ``read_metadata``."""
        return read_metadata(file)

    @staticmethod
    def put_metadata(metadata: TableMetadata, base: TableMetadata | None, file: OutputFile) -> None:
        """See ``write_metadata``."""
        write_metadata(metadata, base, file)

    def before_change(self, table: Table) -> None:
        """Raises NotSentError when metadata would be lost, whoever asks for the change."""
        if lost := find_loss(table):
            name = ".".join(table.name())
            raise NotSentError(f"{name} has {lost} in its metadata, which a commit would lose; nothing was changed")

    @staticmethod
    def writable(metadata: TableMetadata) -> TableMetadata:
        """``metadata``, which PyIceberg refuses to write in format version 3."""
        return writable(metadata)

    @staticmethod
    @contextmanager
    def writing(io: FileIO, path: str) -> Iterator[None]:
        """Raises NotSentError when the file cannot be written: the swap would come after it."""
        try:
            yield
        except OSError as error:
            with suppress(OSError):
                io.delete(path)
            raise NotSentError(*error.args) from error


class OwnRestCatalog(AnsweredRestCatalog):
    """PyIceberg's REST catalog, which keeps its credentials to itself.

    Those that it vends for a table are asked for again before they end.
    """

    def opened(self, table: Table) -> Table:
        """``table`` with completed metadata and a FileIO that renews the credentials that the catalog vends for it."""
        table.metadata = completed(table.metadata)
        if isinstance(table.io, DurableFileIO) and (secrets := vended_secrets(table.io.properties, self.properties)):
            keep_secret(*secrets)
            table.io.vending = Vending(partial(self._vended_again, table), table.io.properties)
        return table

    def before_signing(self) -> None:
        """Raises BadSpec when nobody says which region a signature is for: neither the Warehouse nor the server."""
        if not self.properties.get(signing.REGION):
            raise BadSpec(Reason.INVALID_SPEC, f"it {signing.MISSING_REGION}.", field=_PROPERTIES_FIELD)

    def keys_taken(self, find: Callable[[], SigningKeys | None]) -> SigningKeys:
        """Keys that are shown nowhere. Raises DependencyUnavailable (CATALOG_UNAVAILABLE) when there are none."""
        try:
            keys, problem = find(), "there are none"
        except Exception as error:  # noqa: BLE001 - the errors of boto3 have no common base, and are of keys alone here
            keys, problem = None, first_line(error)
        if keys is None:
            message = (
                f"The catalog {self.name!r} takes signed requests only, and the keys that sign them were not found: "
                f"{problem}; name AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY in spec.credentialsSecretRef.keys, or "
                "give the ServiceAccount of spec.spark.serviceAccountName a role."
            )
            raise DependencyUnavailable(Reason.CATALOG_UNAVAILABLE, message)
        keep_secret(*filter(None, (keys.access_key, keys.secret_key, keys.token)))
        return keys

    def _vended_again(self, table: Table) -> Properties | None:
        """What reaches the files of ``table`` now; None when the catalog has no such table any more."""
        with catalog_answers(self.name):
            try:
                current = self.load_table(table.name())
            except (NoSuchTableError, NoSuchNamespaceError):
                return None
        same = current.metadata.table_uuid == table.metadata.table_uuid
        return current.io.properties if same else None

    def file_io(self, properties: Properties, location: str | None) -> FileIO:
        """A FileIO that knows nothing but how to reach the storage."""
        return storage_io({**self.properties, **properties}, location)


def refuses_for_good(catalog: Catalog) -> bool:
    """Return whether a refused commit is known not to have landed without a look at the table.

    An SQL catalog says no from within its own transaction. Between us and a REST catalog may be a proxy that repeats a
    request which went through; the answer to the second one is no.
    """
    return type(catalog) is OwnSqlCatalog


#: What PyIceberg would lose of metadata files, which never change; empty when it loses nothing.
_lost: ByteCache[str, str] = ByteCache("losses of metadata", 1024 * 1024, lambda lost: 128 + len(lost))


def find_loss(table: Table) -> str:
    """A field of the metadata that a commit would lose, as PyIceberg does not know it; empty when there is none.

    A REST catalog keeps the metadata by itself. Raises DependencyUnavailable (STORAGE_UNAVAILABLE).
    """
    if not isinstance(table.catalog, OwnSqlCatalog) or not is_kept_in_part(table.metadata):
        return ""
    place, whole = table.metadata_location, main_of(table).metadata
    return _lost.get(place, lambda: find_lost(whole, _stored(table, place)) or "")


def _stored(table: Table, place: str) -> bytes:
    try:
        return read_stored(table.io.new_input(place))
    except (OSError, DamagedMetadataError) as error:
        message = f"The metadata file {place} cannot be read: {error}."
        raise DependencyUnavailable(Reason.STORAGE_UNAVAILABLE, message) from error


def load_table(catalog: Catalog, ref: TableRef) -> Table:
    """Load the current metadata of ``ref``, a BranchTable if it names a branch.

    Raises BadSpec with BRANCH_NOT_FOUND as ``on_branch`` does, with TABLE_MISSING when the catalog has no such table,
    TABLE_REPLACED when its UUID is not ``ref.table_uuid``, FORMAT_VERSION_UNSUPPORTED when PyIceberg does not know what
    the metadata says, as types of format version 3; DependencyUnavailable with CATALOG_UNAVAILABLE when the catalog
    does not answer, with STORAGE_UNAVAILABLE when the metadata file that it names is not there, or holds no metadata.
    """
    name = f"{ref.namespace}.{ref.name}"
    with catalog_answers(catalog.name):
        try:
            table = _load_current(catalog, ref)
        except (NoSuchTableError, NoSuchNamespaceError):
            raise BadSpec(Reason.TABLE_MISSING, f"The catalog {catalog.name!r} holds no table {name}.") from None
        except (ValidationError, PydanticValidationError) as error:
            if isinstance(error, DamagedMetadataError) or is_damaged(error):
                message = (
                    f"The metadata file of {name} that the catalog {catalog.name!r} names has something else in it "
                    f"({first_line(_first_problem(error))}); restore the file."
                )
                raise DependencyUnavailable(Reason.STORAGE_UNAVAILABLE, message) from error
            raise BadSpec(
                Reason.FORMAT_VERSION_UNSUPPORTED,
                f"{name} has metadata that Skipstone cannot read ({first_line(_first_problem(error))}); "
                "use another engine for this table.",
            ) from error
    if ref.table_uuid and str(table.metadata.table_uuid) != ref.table_uuid:
        raise BadSpec(
            Reason.TABLE_REPLACED,
            f"{name} is another table now (UUID {table.metadata.table_uuid}, expected {ref.table_uuid}); "
            f"restore the old one or delete and re-create the Table resource.",
        )
    return table if ref.branch is None else on_branch(table, ref.branch)


def _first_problem(error: Exception) -> BaseException:
    """What is wrong with a value, of all that pydantic says of it."""
    validation = find_validation(error)
    return error if validation is None else ValueError(validation.errors()[0]["msg"])


def _load_current(catalog: Catalog, ref: TableRef) -> Table:
    """The table of ``ref``. A metadata file that is gone was replaced while we were about to read it: look again."""
    for _ in range(METADATA_READS - 1):
        with suppress(FileNotFoundError):
            return catalog.load_table(ref.identifier)
    try:
        return catalog.load_table(ref.identifier)
    except FileNotFoundError as error:
        message = (
            f"The catalog {catalog.name!r} names a metadata file of {ref.namespace}.{ref.name} that cannot be found: "
            f"{first_line(error)}. Restore the file, or check that the volume is the right one."
        )
        raise DependencyUnavailable(Reason.STORAGE_UNAVAILABLE, message) from error


@contextmanager
def catalog_answers(name: str) -> Iterator[None]:
    """Turn what catalogs raise when they are away or refuse us into DependencyUnavailable."""
    try:
        yield
    except (SQLAlchemyError, RESTError, RequestException, OSError) as error:
        reason, trouble = tell_trouble(error)
        raise DependencyUnavailable(reason, f"The catalog {name!r} {trouble}") from error


def open_users_catalog(name: str | None, properties: Mapping[str, str]) -> Catalog:
    """The catalog ``name`` of PyIceberg's configuration with ``properties``; ``postgresql://`` means our driver."""
    config = Config()
    configured = config.get_catalog_config(name or config.get_default_catalog_name()) or {}
    uri = properties.get("uri", configured.get("uri"))
    driven = {"uri": with_driver(uri)} if isinstance(uri, str) else {}
    return load_catalog(name, **{**properties, **driven})


def with_driver(uri: str) -> str:
    """``uri`` of an Sql catalog with the driver that comes with Skipstone; SQLAlchemy's own choice may be missing."""
    return _DRIVER_SCHEME + uri.removeprefix(_SCHEME) if uri.startswith(_SCHEME) else uri


def table_location(warehouse: WarehouseRef, ref: TableRef) -> str:
    """Where a table that we create lives: under the root, by namespace and name."""
    return f"{base_location(warehouse)}/{ref.namespace}/{ref.name}"


def base_location(warehouse: WarehouseRef) -> str:
    """The root of a Warehouse as locations of tables name it."""
    return f"file://{warehouse.root}" if warehouse.bucket is None else warehouse.bucket.location()


def _properties(warehouse: WarehouseRef, environment: Mapping[str, str]) -> dict[str, str]:
    """Those of the catalog, with how files of tables are reached unless they say it.

    Credentials are not among them, unless they would be looked for under names that are of another Warehouse.
    """
    bucket = warehouse.bucket
    reached = {} if bucket is None else kind_of(bucket).file_io(bucket)
    keys = {} if warehouse.credentials_prefix is None else own_keys(warehouse, environment)
    return {**reached, **warehouse.catalog.properties, **keys, **CATALOG_PROPERTIES}


def _open_sql(
    warehouse: WarehouseRef, environment: Mapping[str, str], kind: type[OwnSqlCatalog], *, is_known: bool = False
) -> Catalog:
    url = sql_url(warehouse, environment)
    if is_known and url.get_backend_name() == "sqlite":
        url = _existing(url)
    properties = {
        **_properties(warehouse, environment),
        "uri": url.render_as_string(hide_password=False),
        "warehouse": base_location(warehouse),
        "pool_pre_ping": "true",
        **storage_properties(warehouse),
        "init_catalog_tables": "false" if is_known else "true",
    }
    for _ in range(OPENINGS - 1):
        with suppress(ProgrammingError, IntegrityError):  # another driver made the same table a moment before
            return kind(warehouse.catalog.name, **properties)
    return kind(warehouse.catalog.name, **properties)


def _existing(sqlite: URL) -> URL:
    """``sqlite`` as an address that never makes the file."""
    path = Path(str(sqlite.database))
    if not path.is_file():
        message = f"There is no catalog at {path}, and nothing proves that this is the right volume; restore it."
        raise DependencyUnavailable(Reason.CATALOG_UNPROVEN, message)
    return sqlite.set(database=f"file:{quote(str(path))}").update_query_dict({"mode": "rw", "uri": "true"})


def _open_rest(warehouse: WarehouseRef, environment: Mapping[str, str]) -> Catalog:
    reference = warehouse.catalog
    _require_fit(reference)
    _require_private(reference, environment)
    secrets = {"credential": environment.get(CREDENTIAL_VARIABLE), "token": environment.get(TOKEN_VARIABLE)}
    given = {key: value for key, value in secrets.items() if value}
    given |= storage_properties(warehouse)
    return OwnRestCatalog(reference.name, **_properties(warehouse, environment), **given, uri=reference.uri)


def _require_fit(reference: CatalogRef) -> None:
    """Raise BadSpec for an address that may hold credentials or parameters nobody looks at."""
    if problem := find_uri_problem(reference.type, reference.uri):
        raise BadSpec(Reason.INVALID_SPEC, f"it {problem}", field=_URI_FIELD)


def _require_private(reference: CatalogRef, environment: Mapping[str, str]) -> None:
    """Raise BadSpec before credentials go over a connection that anybody on the way can read."""
    given = [name for name in (CREDENTIAL_VARIABLE, TOKEN_VARIABLE) if environment.get(name)]
    if given and not reference.allow_plaintext_credentials and sends_plaintext(reference.uri, reference.properties):
        raise BadSpec(Reason.INVALID_SPEC, f"it {PLAINTEXT}", field=_URI_FIELD)


def sql_url(warehouse: WarehouseRef, environment: Mapping[str, str]) -> URL:
    """The SQLAlchemy URL of an Sql catalog, with credentials from ``environment``.

    Raises BadSpec (INVALID_SPEC, PATH_OUTSIDE_WAREHOUSE).
    """
    _require_fit(warehouse.catalog)
    text = warehouse.catalog.uri or f"sqlite:///{warehouse.root}/{SQLITE_FILE}"
    if warehouse.bucket and text.startswith("sqlite"):
        message = "an Sql catalog of a Warehouse in a bucket needs PostgreSQL: set an address with postgresql://."
        raise BadSpec(Reason.INVALID_SPEC, message, field=_URI_FIELD)
    try:
        url = make_url(with_driver(text))
        backend = url.get_dialect().name
    except (ArgumentError, NoSuchModuleError):
        raise BadSpec(Reason.INVALID_SPEC, "this is not an SQLAlchemy URL.", field=_URI_FIELD) from None
    if backend == "sqlite":
        return _sqlite_url(url, Path(warehouse.root))
    if backend == "postgresql":
        return _postgres_url(url, environment)
    raise BadSpec(Reason.INVALID_SPEC, f"{backend} is not supported; use sqlite or postgresql.", field=_URI_FIELD)


def _sqlite_url(url: URL, root: Path) -> URL:
    if not url.database or url.database == ":memory:":
        raise BadSpec(Reason.INVALID_SPEC, "an SQLite catalog needs a file below the root.", field=_URI_FIELD)
    if not Path(url.database).resolve().is_relative_to(root.resolve()):
        message = f"the SQLite file {url.database} is not below the Warehouse's root {root}."
        raise BadSpec(Reason.PATH_OUTSIDE_WAREHOUSE, message, field=_URI_FIELD)
    return url.update_query_dict({"timeout": SQLITE_BUSY_SECONDS})


def _postgres_url(url: URL, environment: Mapping[str, str]) -> URL:
    _require_driver(url)
    user = environment.get(USER_VARIABLE) or url.username
    with_login = url.set(username=user, password=environment.get(PASSWORD_VARIABLE) or None)
    return with_login.set(query={**POSTGRES_DEFAULTS, **url.query})


def _require_driver(url: URL) -> None:
    try:
        url.get_dialect().import_dbapi()
    except ImportError as error:
        message = f"the image of runs has no driver {url.drivername!r} ({error}); write postgresql:// to use psycopg2."
        raise BadSpec(Reason.INVALID_SPEC, message, field=_URI_FIELD) from error
