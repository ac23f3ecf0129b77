package skipstone;

import com.fasterxml.jackson.databind.ObjectMapper;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeSet;
import org.apache.iceberg.HasTableOperations;
import org.apache.iceberg.Table;
import org.apache.iceberg.TableMetadata;
import org.apache.iceberg.spark.source.SparkTable;
import org.apache.spark.sql.catalyst.expressions.Alias;
import org.apache.spark.sql.catalyst.expressions.AttributeReference;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.PlanExpression;
import org.apache.spark.sql.catalyst.expressions.aggregate.Max;
import org.apache.spark.sql.catalyst.expressions.aggregate.Min;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.classic.Dataset;
import org.apache.spark.sql.classic.Dataset$;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.classic.SparkSession$;
import org.apache.spark.sql.connector.catalog.CatalogPlugin;
import org.apache.spark.sql.execution.QueryExecution;
import org.apache.spark.sql.execution.datasources.v2.DataSourceV2Relation;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DoubleType;
import org.apache.spark.sql.types.FloatType;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;
import scala.Option;

/**
 * What planning has to know of a query before it looks closer, as one JSON text.
 *
 * <p>Compiled in the JVM of a session by Janino, which Spark's own generated code needs: no generics, no lambdas. The
 * rules by which columns are conditioned are those of {@code guarding.conditioned}.
 */
public class PlanOutline {
  private static final ObjectMapper MAPPER = new ObjectMapper();

  /** Characters of a text that py4j sends at once; a longer one would wait for the network. */
  private final int piece;

  /** Prefix of the settings of a session that count, and names of others that do. */
  private final String prefix;

  private final List others;

  public PlanOutline(int piece, String prefix, List others) {
    this.piece = piece;
    this.prefix = prefix;
    this.others = others;
  }

  /** A copy of the query of {@code dataset}, so that nothing is pinned for that: Spark has run its commands. */
  public QueryExecution copied(SparkSession session, Dataset dataset) {
    SparkSession before = enter(session);
    try {
      return Dataset$.MODULE$.ofRows(session, dataset.queryExecution().commandExecuted()).queryExecution();
    } finally {
      leave(before);
    }
  }

  /** The settings of {@code session} that count, and its tasks at a time. */
  public Object settings(SparkSession session) throws Exception {
    Map settings = new LinkedHashMap();
    Map all = session.conf().getAllAsJava();
    for (Object entry : all.entrySet()) {
      String name = (String) ((Map.Entry) entry).getKey();
      if (name.startsWith(prefix) || others.contains(name)) {
        settings.put(name, ((Map.Entry) entry).getValue());
      }
    }
    Map facts = new LinkedHashMap();
    facts.put("settings", settings);
    facts.put("parallelism", new Integer(session.sparkContext().defaultParallelism()));
    return text(facts);
  }

  /** The outline of a query, of the versions of its tables that Spark reads: a text, or its builder if it is long. */
  public Object outline(SparkSession session, QueryExecution execution) throws Exception {
    SparkSession before = enter(session);
    try {
      LogicalPlan plan = execution.tableVersionsRefreshed();
      Walk walk = new Walk();
      walk.plan(plan, true);
      walk.close();
      Map facts = new LinkedHashMap();
      facts.put("is_streaming", Boolean.valueOf(plan.isStreaming()));
      facts.put("nodes", walk.nodes);
      List relations = new ArrayList();
      for (Object relation : walk.relations) {
        relations.add(described((DataSourceV2Relation) relation, walk.conditioned));
      }
      facts.put("relations", relations);
      return text(facts);
    } finally {
      leave(before);
    }
  }

  private Object text(Map facts) throws Exception {
    String text = MAPPER.writeValueAsString(facts);
    return text.length() <= piece ? (Object) text : new StringBuilder(text);
  }

  /** Makes {@code session} the one that Spark's rules take their settings from, and gives the one before, or null. */
  public SparkSession enter(SparkSession session) {
    Option before = SparkSession$.MODULE$.getActiveSession();
    SparkSession$.MODULE$.setActiveSession(session);
    return before.isDefined() ? (SparkSession) before.get() : null;
  }

  /** Makes {@code before} that session again. */
  public void leave(SparkSession before) {
    if (before == null) {
      SparkSession$.MODULE$.clearActiveSession();
    } else {
      SparkSession$.MODULE$.setActiveSession(before);
    }
  }

  private static Map described(DataSourceV2Relation relation, Set conditioned) {
    Map facts = new LinkedHashMap();
    facts.put("kind", relation.table().getClass().getName());
    if (!(relation.table() instanceof SparkTable)) {
      return facts;
    }
    SparkTable spark = (SparkTable) relation.table();
    Table table = spark.table();
    facts.put("table_kind", table.getClass().getName());
    facts.put("name", table.name());
    Option catalog = relation.catalog();
    facts.put("catalog", catalog.isDefined() ? ((CatalogPlugin) catalog.get()).name() : null);
    facts.put("snapshot_id", spark.snapshotId());
    if (table instanceof HasTableOperations) {
      TableMetadata metadata = ((HasTableOperations) table).operations().current();
      facts.put("location", metadata.metadataFileLocation());
      facts.put("uuid", metadata.uuid());
    }
    List asked = new ArrayList();
    boolean hasFloat = false;
    for (int at = 0; at < relation.output().size(); at++) {
      AttributeReference column = (AttributeReference) relation.output().apply(at);
      if (conditioned.contains(new Long(column.exprId().id()))) {
        asked.add(column.name());
        hasFloat |= isFloat(column.dataType());
      }
    }
    facts.put("asked", asked);
    facts.put("has_float", Boolean.valueOf(hasFloat));
    return facts;
  }

  private static boolean isFloat(DataType kind) {
    if (kind instanceof StructType) {
      StructField[] fields = ((StructType) kind).fields();
      for (int at = 0; at < fields.length; at++) {
        if (isFloat(fields[at].dataType())) {
          return true;
        }
      }
    }
    return kind instanceof FloatType || kind instanceof DoubleType;
  }

  /** A walk through a plan and the plans inside its expressions. */
  private static class Walk {
    final Set nodes = new TreeSet();
    final List relations = new ArrayList();
    final Set conditioned = new HashSet();
    private final Map aliases = new HashMap();

    void plan(LogicalPlan node, boolean isOuter) {
      String name = node.getClass().getName();
      name = name.substring(name.lastIndexOf('.') + 1);
      nodes.add(name);
      if (node instanceof DataSourceV2Relation) {
        if (((DataSourceV2Relation) node).output().size() > 0) {
          relations.add(node);
        }
        return;
      }
      boolean givesOut =
          isOuter
              && (name.equals("Aggregate") || name.equals("Project") || name.equals("Sort") || name.equals("Window"));
      for (int at = 0; at < node.expressions().size(); at++) {
        expression((Expression) node.expressions().apply(at), !givesOut, null);
      }
      for (int at = 0; at < node.children().size(); at++) {
        plan((LogicalPlan) node.children().apply(at), isOuter);
      }
    }

    /** Collects the columns of an expression: those of a condition, or else those that are below {@code alias}. */
    private void expression(Expression node, boolean isCondition, Set alias) {
      if (node instanceof AttributeReference) {
        Long id = new Long(((AttributeReference) node).exprId().id());
        if (isCondition) {
          conditioned.add(id);
        }
        if (alias != null) {
          alias.add(id);
        }
        return;
      }
      if (node instanceof PlanExpression) {
        plan((LogicalPlan) ((PlanExpression) node).plan(), false);
      }
      boolean isAsked = isCondition || node instanceof Max || node instanceof Min;
      Set below = alias;
      if (node instanceof Alias) {
        below = new HashSet();
      }
      for (int at = 0; at < node.children().size(); at++) {
        expression((Expression) node.children().apply(at), isAsked, below);
      }
      if (node instanceof Alias) {
        aliases.put(new Long(((Alias) node).exprId().id()), below);
        if (alias != null) {
          alias.addAll(below);
        }
      }
    }

    /** Adds the columns that conditioned aliases are made of. */
    void close() {
      List left = new ArrayList(conditioned);
      while (!left.isEmpty()) {
        Set more = (Set) aliases.get(left.remove(left.size() - 1));
        if (more != null) {
          for (Object id : more) {
            if (conditioned.add(id)) {
              left.add(id);
            }
          }
        }
      }
    }
  }
}
