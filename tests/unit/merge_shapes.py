"""The shapes of MERGE statements in the suites of Delta Lake and Iceberg, on the columns of generated statements.

For each shape a statement of our own, and what becomes of it: a MergeJob, or the words of its refusal.
"""

from __future__ import annotations

from dataclasses import dataclass

UPDATE_ALL = "WHEN MATCHED THEN UPDATE SET *"
INSERT_ALL = "WHEN NOT MATCHED THEN INSERT *"
SET_A = "WHEN MATCHED THEN UPDATE SET a = s.a"
NEWEST = "SELECT *, ROW_NUMBER() OVER (PARTITION BY id ORDER BY seq DESC) AS rn FROM s"


@dataclass(frozen=True)
class Shape:
    """``clauses`` behind ``USING using ON on``. ``refused``: words of the sentence, empty for a MergeJob.

    ``keys_are_set``: the source has no null in a key. ``is_sql``: Spark reads the statement; its builders allow more.
    """

    clauses: str
    on: str = "t.id = s.id"
    using: str = "s"
    before: str = ""
    refused: str = ""
    keys_are_set: bool = False
    is_sql: bool = True

    @property
    def text(self) -> str:
        """The whole statement."""
        return f"{self.before}MERGE INTO t USING {self.using} ON {self.on} {self.clauses}"


CLAUSES = (
    Shape(UPDATE_ALL),
    Shape("WHEN MATCHED THEN DELETE"),
    Shape(INSERT_ALL),
    Shape(f"{UPDATE_ALL} {INSERT_ALL}"),
    Shape(f"WHEN MATCHED AND s.op = 'D' THEN DELETE {UPDATE_ALL} {INSERT_ALL}"),
    Shape(f"{INSERT_ALL} WHEN MATCHED AND s.a > 1 THEN DELETE", is_sql=False),
    Shape("WHEN MATCHED AND s.a <> 1 AND t.a <> 3 THEN UPDATE SET a = s.a, name = s.name"),
    Shape("WHEN MATCHED AND t.id = 1 THEN UPDATE SET * WHEN MATCHED AND t.id = 2 THEN DELETE"),
    Shape("WHEN MATCHED AND s.id < 2 THEN DELETE WHEN MATCHED AND s.id > 3 THEN DELETE " + UPDATE_ALL + INSERT_ALL),
    Shape("WHEN MATCHED AND NULL THEN DELETE WHEN MATCHED AND s.a = 1 AND NULL THEN UPDATE SET a = 5"),
    Shape("WHEN NOT MATCHED AND s.id = 1 THEN INSERT (name, id) VALUES (s.name, -1) WHEN NOT MATCHED THEN INSERT *"),
    Shape(
        "WHEN NOT MATCHED AND (s.id >= 2) THEN INSERT * WHEN NOT MATCHED AND s.id < 0 THEN INSERT (id) VALUES (s.id)"
    ),
    Shape("WHEN NOT MATCHED AND ok = TRUE THEN INSERT (a, id) VALUES (s.a + 100, s.id)"),
    Shape("WHEN NOT MATCHED AND s.id IS NULL THEN INSERT (t.id, t.a) VALUES (s.id, s.a)"),
    Shape("WHEN MATCHED THEN UPDATE SET t.id = 20 + s.id, t.a = t.a + s.a"),
    Shape("WHEN MATCHED THEN UPDATE SET a = t.a + 3, name = NULL WHEN NOT MATCHED THEN INSERT (id) VALUES (s.id - 10)"),
    Shape("WHEN NOT MATCHED BY SOURCE THEN DELETE"),
    Shape("WHEN NOT MATCHED BY SOURCE AND t.a > 1 THEN DELETE WHEN NOT MATCHED BY SOURCE THEN UPDATE SET a = t.a + 1"),
    Shape(
        "WHEN NOT MATCHED BY SOURCE AND t.id % 6 = 1 THEN UPDATE SET a = t.a + 4 WHEN NOT MATCHED BY SOURCE THEN DELETE"
    ),
    Shape(f"{UPDATE_ALL} {INSERT_ALL} WHEN NOT MATCHED BY SOURCE THEN DELETE"),
    Shape(f"{INSERT_ALL} WHEN NOT MATCHED BY SOURCE THEN UPDATE SET a = coalesce(t.a, 0) + 1"),
    Shape("WHEN MATCHED THEN DELETE WHEN NOT MATCHED BY SOURCE THEN DELETE"),
    Shape("WHEN MATCHED AND s.a % 2 = 0 THEN DELETE WHEN NOT MATCHED BY SOURCE AND t.a % 20 = 0 THEN DELETE"),
    Shape("WHEN MATCHED THEN UPDATE SET a = CASE WHEN s.a > t.a THEN s.a ELSE t.a END, name = if(t.ok, 'x', s.name)"),
    Shape("WHEN NOT MATCHED THEN INSERT (id, a) VALUES (s.id, CASE s.op WHEN 'D' THEN 0 WHEN 'U' THEN s.a END)"),
    Shape("WHEN MATCHED THEN UPDATE SET a = DEFAULT"),
    Shape("WHEN MATCHED AND t.a BETWEEN s.a AND 10 AND t.grp NOT IN ('x', 'y') THEN DELETE"),
    Shape("WHEN MATCHED AND NOT (t.a = s.a) AND coalesce(t.name, '') <> coalesce(s.name, '') THEN UPDATE SET *"),
)
MATCHES = (
    Shape(f"{SET_A} {INSERT_ALL}", on="t.id == s.id AND t.a IN (1, 3)"),
    Shape(f"{SET_A} {INSERT_ALL}", on="s.id = t.id AND s.a < t.a"),
    Shape(f"{SET_A} {INSERT_ALL}", on="s.id = t.id AND t.a > 0 AND s.id < 5"),
    Shape(f"{SET_A} {INSERT_ALL}", on="t.id = s.id AND ((t.name = 'x' AND t.grp IN ('x', 'y')) OR t.grp = 'xy')"),
    Shape(f"{SET_A} {INSERT_ALL}", on="t.id = s.id AND NULL"),
    Shape(f"{SET_A} {INSERT_ALL}", on="t.id = s.id AND s.id IS NULL"),
    Shape(f"{SET_A} {INSERT_ALL}", on="t.id = s.id AND t.a IS NOT NULL"),
    Shape(f"{SET_A} {INSERT_ALL}", on="t.id = s.id AND t.grp <=> s.grp"),
    Shape(f"{SET_A} {INSERT_ALL}", on="t.id = s.id AND t.id = 1 AND s.id = 1"),
    Shape(
        "WHEN NOT MATCHED BY SOURCE AND t.a = 1 THEN UPDATE SET a = t.a + 1 "
        "WHEN NOT MATCHED BY SOURCE AND t.id = 4 THEN DELETE",
        on="t.id = s.id AND t.id > 4",
    ),
    Shape(
        "WHEN MATCHED AND t.id = 7 THEN DELETE WHEN NOT MATCHED BY SOURCE AND t.id < 4 THEN UPDATE SET a = t.a + 1",
        on="t.id = s.id AND t.id > 4",
    ),
    Shape(SET_A, on="t.id <=> s.id", refused="lets null equal null"),
    Shape(f"{SET_A} {INSERT_ALL}", on="t.id <=> s.id", keys_are_set=True),
    Shape(SET_A, on="t.id = s.id OR (t.id IS NULL AND s.id IS NULL)", refused="lets null equal null"),
    Shape(f"{SET_A} {INSERT_ALL}", on="(s.id IS NULL AND t.id IS NULL) OR t.id = s.id", keys_are_set=True),
    Shape(f"{SET_A} {INSERT_ALL}", on="t.id = s.id AND (t.grp = s.grp OR (t.grp IS NULL AND s.grp IS NULL))"),
    Shape(SET_A, on="t.id > s.id", refused="a MergeJob matches rows by keys"),
    Shape(SET_A, on="t.id < 3", refused="a MergeJob matches rows by keys"),
    Shape(SET_A, on="1 = 1", refused="a MergeJob matches rows by keys"),
    Shape(f"{INSERT_ALL} WHEN NOT MATCHED BY SOURCE THEN DELETE", on="false", refused="matches rows by keys"),
    Shape(SET_A, on="t.id = s.id AND rand() > 0.5", refused="is not an expression"),
    Shape(SET_A, on="t.id = s.id AND max(t.id) > 20", refused="is not an expression"),
    Shape(SET_A, on="t.id = s.id AND t.a IN (SELECT a FROM u)", refused="asks another table"),
    Shape(SET_A, on="t.id = cast(s.name AS INT)", refused="compares what is computed"),
    Shape(SET_A, on="id = s.id", refused="does not say whose column it is"),
    Shape(SET_A, on="t.id = s.id OR t.a = s.a", refused="a MergeJob matches rows by keys"),
    Shape(SET_A, on="(t.id, t.a) = (s.id, s.a)", refused="compares what is computed"),
    Shape(SET_A, on="coalesce(t.id, 0) = coalesce(s.id, 0)", refused="compares what is computed"),
)
SOURCES = (
    Shape(f"{SET_A} {INSERT_ALL}", using="(SELECT * FROM s WHERE a > 0) AS s"),
    Shape(f"{SET_A} {INSERT_ALL}", using="changes AS s", before="WITH changes AS (SELECT * FROM s WHERE a > 0) "),
    Shape(
        f"{SET_A} WHEN NOT MATCHED BY SOURCE THEN DELETE",
        using="d AS s",
        before="WITH c AS (SELECT id, a AS b FROM s WHERE id > 1), d AS (SELECT id, b AS a FROM c WHERE b < 5) ",
    ),
    Shape(SET_A, using=f"(SELECT * FROM ({NEWEST}) WHERE rn = 1) AS s"),
    Shape(SET_A, using=f"(SELECT * FROM ({NEWEST}) WHERE rn = 1 AND ok) AS s"),
    Shape(
        "WHEN MATCHED AND b > d THEN UPDATE SET a = b, name = op WHEN NOT MATCHED THEN INSERT (id, a) VALUES (sid, b)",
        using="(SELECT id AS sid, a AS b, op FROM s)",
        on="id = sid",
    ),
    Shape(SET_A, using="(SELECT id + 1 AS id, a FROM s) AS s", refused="is computed"),
    Shape(SET_A, using="(SELECT * FROM s UNION ALL SELECT * FROM s) AS s", refused="neither a table nor a SELECT"),
    Shape(SET_A, using="(VALUES (1, 2)) AS s(id, a)", refused="neither a table nor a SELECT"),
    Shape(SET_A, using="(SELECT 5 AS id, 5 AS a) AS s", refused="selects from no table"),
    Shape(SET_A, using="(SELECT s.* FROM s JOIN u ON s.id = u.id) AS s", refused="JOINS"),
    Shape(SET_A, using="(SELECT id, max(a) AS a FROM s GROUP BY id) AS s", refused="GROUP"),
    Shape(SET_A, using="(SELECT * FROM s ORDER BY a LIMIT 1) AS s", refused="LIMIT, ORDER"),
)
VALUES = (
    Shape("WHEN MATCHED THEN UPDATE SET a = rand()", refused="is not an expression"),
    Shape("WHEN MATCHED THEN UPDATE SET a = array(1)", refused="is not an expression"),
    Shape("WHEN MATCHED THEN UPDATE SET a = try_cast(s.name AS INT) + 10", refused="is null where the cast fails"),
    Shape("WHEN MATCHED THEN UPDATE SET a = 1, a = 2", refused="gets two values"),
    Shape("WHEN MATCHED THEN UPDATE SET a = s.a, t.a = s.a", refused="gets two values"),
    Shape("WHEN NOT MATCHED THEN INSERT (a, a) VALUES (1, 2)", refused="gets two values"),
    Shape("WHEN NOT MATCHED THEN INSERT (id, a.b) VALUES (s.id, 1)", refused="give the whole column a value"),
    Shape("WHEN MATCHED THEN UPDATE SET a.b = 1, a.b = 2", refused="gets two values"),
    Shape("WHEN NOT MATCHED THEN INSERT (id) VALUES (t.id)", refused="is of the table"),
    Shape("WHEN NOT MATCHED THEN INSERT (id, a) VALUES (s.id)", refused="2 columns and 1 values"),
    Shape("WHEN NOT MATCHED THEN INSERT VALUES (s.id)", refused="without names of columns"),
    Shape("WHEN NOT MATCHED AND t.a > 1 THEN INSERT *", refused="is of the table"),
    Shape("WHEN NOT MATCHED BY SOURCE THEN UPDATE SET a = s.a", refused="is of the source"),
    Shape("WHEN NOT MATCHED BY SOURCE THEN UPDATE SET *", refused="has no source row"),
    Shape("WHEN NOT MATCHED BY SOURCE AND s.a > 1 THEN DELETE", refused="is of the source"),
    Shape("WHEN NOT MATCHED BY SOURCE AND max(0) > 0 THEN DELETE", refused="is not an expression"),
    Shape("WHEN NOT MATCHED BY SOURCE AND t.a IN (SELECT a FROM u) THEN DELETE", refused="asks another table"),
    Shape("WHEN MATCHED THEN DELETE WHEN MATCHED THEN UPDATE SET *", refused="put that one last"),
    Shape("WHEN NOT MATCHED BY SOURCE THEN DELETE " * 2, refused="put that one last"),
)
SHAPES = (*CLAUSES, *MATCHES, *SOURCES, *VALUES)
