"""Why a relation of a query is read as Spark reads it: one code and one sentence per reason.

Used by the modules of this package and shown by ``skipstone.explain``. Must not know Spark or plans.
"""

from __future__ import annotations

from skipstone_core.coded import CodedSentence


class Refusal(CodedSentence):
    """The code of a reason."""

    # the query
    SWITCHED_OFF = "SwitchedOff", "Indexes are off: skipstone.enabled is false, or no_index was called."
    SPARK_CONNECT = "SparkConnect", "Plans of Spark Connect cannot be rewritten from the client."
    STREAMING = "Streaming", "A streaming query reads each new file once; an index has nothing to skip."
    COMMAND = "Command", "Commands read and write their target themselves; only queries are rewritten."
    LOCAL_ROWS = "LocalRows", "The rows are in the plan already: a SQL script or a command has run, or they are local."
    RECURSIVE = "Recursive", "A recursive query reads its relations once per step."
    CANNOT_PLAN = "CannotPlan", "Spark cannot plan the rewritten query."
    NOT_PLANNED = "NotPlanned", "The rule that plans the relation is disabled, or failed."
    FAILED = "Failed", "Rewriting failed; the message says why."
    # the relation
    CACHED = "Cached", "The relation is answered from Spark's cache."
    METADATA_TABLE = "MetadataTable", "Metadata tables hold no rows of the table."
    CHANGELOG_TABLE = "ChangelogTable", "A changelog is computed from commits, not from rows that an index knows."
    NO_CATALOG = "NoCatalog", "The table was read by its path; its indexes are found through its catalog."
    READ_OPTION = "ReadOption", "A read option changes which rows are read."
    SCHEMA_DIFFERS = "SchemaDiffersFromSnapshot", "Spark reads the snapshot by a schema with other columns."
    ROW_LINEAGE = "RowLineage", "The query names _row_id or _last_updated_sequence_number."
    NON_DETERMINISTIC = (
        "NonDeterministic",
        "An expression above the relation depends on the rows that it sees and on their order.",
    )
    SAMPLED = "Sampled", "The query samples the relation, and the sample depends on the files that are read."
    ENCRYPTED = "Encrypted", "The table is encrypted, and staged scans do not have its keys."
    EMPTY = "Empty", "The snapshot has no rows."
    RUNTIME_FILTER = "RuntimeFilter", "A join filters the partitions of the table when the query runs."
    PARTITIONED_JOIN = "PartitionedJoin", "The table is joined by its partitions, which saves a shuffle."
    READ_TWICE = "ReadTwice", "If tasks read the index, Spark would read another relation of the query twice."
    # its condition
    LIMITED = "Limited", "A limit is between the relation and its condition."
    DEFAULT_INDEX = (
        "DefaultIndex",
        "pandas on Spark numbers all rows before the condition applies: set index_col, or select columns without the "
        "index.",
    )
    OUTER_JOIN = "OuterJoin", "The condition is above an outer join that supplies nulls for the relation."
    NO_CONDITION = "NoCondition", "The query has no condition that every row of the relation must satisfy."
    COLLATED = "Collated", "Strings are compared by a collation; indexes order them by their bytes."
    CAST = "Cast", "A column is compared after a cast that changes its values."
    CONDITION = "Condition", "An index cannot evaluate the condition."
    LIST_TOO_LONG = "ListTooLong", "A list or another expression has more values than an index lookup allows."
    # its indexes
    HINTED = "Hinted", "A hint of the query says that no index of the table is used."
    NO_INDEX = "NoIndex", "The table has no index."
    INDEX_NOT_USED = "IndexNotUsed", "No index is used; the reasons are listed with each index."
    NOT_NARROWING = "NotNarrowing", "The indexes exclude no file, and Spark reads whole files."


class RelationRefused(Exception):
    """The relation is read as Spark reads it."""

    def __init__(self, refusal: Refusal, detail: str = "") -> None:
        super().__init__(detail)
        self.refusal = refusal
        self.detail = detail
