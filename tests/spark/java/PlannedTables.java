import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.math.BigDecimal;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.HashMap;
import java.util.HashSet;
import java.util.Iterator;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import org.apache.hadoop.conf.Configuration;
import org.apache.iceberg.AppendFiles;
import org.apache.iceberg.BaseTable;
import org.apache.iceberg.DataFiles;
import org.apache.iceberg.FileFormat;
import org.apache.iceberg.FileScanTask;
import org.apache.iceberg.Metrics;
import org.apache.iceberg.PartitionKey;
import org.apache.iceberg.PartitionSpecParser;
import org.apache.iceberg.Schema;
import org.apache.iceberg.SchemaParser;
import org.apache.iceberg.StructLike;
import org.apache.iceberg.Table;
import org.apache.iceberg.TableScan;
import org.apache.iceberg.UpdatePartitionSpec;
import org.apache.iceberg.data.GenericRecord;
import org.apache.iceberg.expressions.Evaluator;
import org.apache.iceberg.expressions.Expression;
import org.apache.iceberg.expressions.ExpressionParser;
import org.apache.iceberg.expressions.ExpressionUtil;
import org.apache.iceberg.expressions.Expressions;
import org.apache.iceberg.expressions.Term;
import org.apache.iceberg.expressions.UnboundPredicate;
import org.apache.iceberg.hadoop.HadoopTables;
import org.apache.iceberg.io.CloseableIterable;
import org.apache.iceberg.types.Comparators;
import org.apache.iceberg.types.Conversions;
import org.apache.iceberg.types.Type;
import org.apache.iceberg.types.Types;
import org.apache.iceberg.util.NaNUtil;

/** Tables of files that have partition values and bounds and no content: who plans a scan reads nothing else. */
public class PlannedTables {
  private static final ObjectMapper JSON = new ObjectMapper();
  /** By location, then by path: the rows of each file, each a record of the schema that the table had. */
  private static final Map ROWS = new HashMap();

  /** Make a table by steps: append (rows), remove and add (fields of the spec), promote, rename. */
  public static String build(String location, String version, String schemaJson, String specJson, String stepsJson)
      throws Exception {
    Schema schema = SchemaParser.fromJson(schemaJson);
    Map properties = new HashMap();
    properties.put("format-version", version);
    Table table =
        new HadoopTables(new Configuration())
            .create(schema, PartitionSpecParser.fromJson(schema, specJson), properties, location);
    ROWS.put(location, new LinkedHashMap());
    JsonNode steps = JSON.readTree(stepsJson);
    for (int place = 0; place < steps.size(); place++) {
      JsonNode step = (JsonNode) steps.get(place);
      if (step.has("append")) {
        append(table, location, (JsonNode) step.get("append"), ((JsonNode) step.get("bounds")).asBoolean());
      } else if (step.has("promote")) {
        Type.PrimitiveType type = Types.fromPrimitiveString(((JsonNode) step.get("type")).asText());
        table.updateSchema().updateColumn(((JsonNode) step.get("promote")).asText(), type).commit();
      } else if (step.has("rename")) {
        table.updateSchema().renameColumn(((JsonNode) step.get("rename")).asText(), ((JsonNode) step.get("to")).asText()).commit();
      } else {
        respec(table, step);
      }
      table.refresh();
    }
    return ((BaseTable) table).operations().current().metadataFileLocation();
  }

  private static void respec(Table table, JsonNode step) {
    UpdatePartitionSpec update = table.updateSpec();
    JsonNode removed = (JsonNode) step.get("remove");
    for (int place = 0; place < removed.size(); place++) {
      update.removeField(((JsonNode) removed.get(place)).asText());
    }
    JsonNode added = (JsonNode) step.get("add");
    for (int place = 0; place < added.size(); place++) {
      JsonNode field = (JsonNode) added.get(place);
      update.addField(((JsonNode) field.get("name")).asText(), term(((JsonNode) field.get("term")).toString()));
    }
    update.commit();
  }

  private static Term term(String json) {
    return ((UnboundPredicate) ExpressionParser.fromJson("{\"type\":\"not-null\",\"term\":" + json + "}")).term();
  }

  private static void append(Table table, String location, JsonNode rows, boolean hasBounds) {
    Map groups = new LinkedHashMap();
    for (int place = 0; place < rows.size(); place++) {
      StructLike row = Judge.record(table.schema(), (JsonNode) rows.get(place));
      PartitionKey key = new PartitionKey(table.spec(), table.schema());
      key.partition(row);
      if (!groups.containsKey(key)) {
        groups.put(key, new ArrayList());
      }
      ((List) groups.get(key)).add(row);
    }
    Map files = (Map) ROWS.get(location);
    AppendFiles append = table.newAppend();
    Iterator keys = groups.keySet().iterator();
    while (keys.hasNext()) {
      PartitionKey key = (PartitionKey) keys.next();
      List group = (List) groups.get(key);
      String path = location + "/data/" + files.size() + ".parquet";
      DataFiles.Builder builder = DataFiles.builder(table.spec());
      builder.withPath(path);
      builder.withFileSizeInBytes(100L);
      builder.withFormat(FileFormat.PARQUET);
      builder.withMetrics(hasBounds ? metrics(table.schema(), group) : new Metrics(Long.valueOf(group.size())));
      if (!table.spec().isUnpartitioned()) {
        builder.withPartition(key);
      }
      append.appendFile(builder.build());
      files.put(path, new Object[] {table.schema(), group});
    }
    append.commit();
  }

  private static Metrics metrics(Schema schema, List rows) {
    Map values = new HashMap(), nulls = new HashMap(), nans = new HashMap(), lower = new HashMap(), upper = new HashMap();
    for (int place = 0; place < schema.columns().size(); place++) {
      Types.NestedField field = (Types.NestedField) schema.columns().get(place);
      Integer id = Integer.valueOf(field.fieldId());
      Comparator order = Comparators.forType(field.type().asPrimitiveType());
      Object least = null, greatest = null;
      long nullCount = 0, nanCount = 0;
      for (int row = 0; row < rows.size(); row++) {
        Object value = ((StructLike) rows.get(row)).get(place, Object.class);
        if (value == null) {
          nullCount++;
        } else if (NaNUtil.isNaN(value)) {
          nanCount++;
        } else {
          least = least == null || order.compare(value, least) < 0 ? value : least;
          greatest = greatest == null || order.compare(value, greatest) > 0 ? value : greatest;
        }
      }
      values.put(id, Long.valueOf(rows.size()));
      nulls.put(id, Long.valueOf(nullCount));
      if (field.type().typeId() == Type.TypeID.FLOAT || field.type().typeId() == Type.TypeID.DOUBLE) {
        nans.put(id, Long.valueOf(nanCount));
      }
      if (least != null) {
        lower.put(id, Conversions.toByteBuffer(field.type(), least));
        upper.put(id, Conversions.toByteBuffer(field.type(), greatest));
      }
    }
    return new Metrics(Long.valueOf(rows.size()), null, values, nulls, nans, lower, upper);
  }

  /**
   * How Java plans a scan for a conjunction: for each part whether Java trusts the list for it, then for each file
   * whether it is planned, and how many rows there are, pass the whole, and pass each part. A line R and why if Java
   * refuses the filter.
   */
  public static String plan(String location, String partsJson, boolean caseSensitive) throws Exception {
    Table table = new HadoopTables(new Configuration()).load(location);
    JsonNode parts = JSON.readTree(partsJson);
    List filters = new ArrayList();
    List evaluators = new ArrayList();
    StringBuilder told = new StringBuilder();
    Set planned = new HashSet();
    try {
      Expression whole = Expressions.alwaysTrue();
      for (int place = 0; place < parts.size(); place++) {
        Expression part = ExpressionParser.fromJson(((JsonNode) parts.get(place)).toString());
        whole = Expressions.and(whole, part);
        filters.add(part);
        told.append(ExpressionUtil.selectsPartitions(part, table, caseSensitive) ? 'T' : 'F');
      }
      filters.add(0, whole);
      for (int place = 0; place < filters.size(); place++) {
        Expression positive = Expressions.rewriteNot((Expression) filters.get(place));
        Expression judged = Judge.withoutNulls(positive, table.schema().asStruct(), caseSensitive);
        evaluators.add(new Evaluator(table.schema().asStruct(), judged, caseSensitive));
      }
      TableScan scan = (TableScan) table.newScan().filter(whole);
      CloseableIterable tasks = ((TableScan) scan.caseSensitive(caseSensitive)).planFiles();
      Iterator each = tasks.iterator();
      while (each.hasNext()) {
        planned.add(((FileScanTask) each.next()).file().location());
      }
      tasks.close();
    } catch (RuntimeException refusal) {
      return "R" + refusal;
    }
    Iterator files = ((Map) ROWS.get(location)).entrySet().iterator();
    while (files.hasNext()) {
      Map.Entry file = (Map.Entry) files.next();
      Object[] held = (Object[]) file.getValue();
      told.append('\n').append(file.getKey()).append(' ').append(planned.contains(file.getKey()) ? 1 : 0);
      List rows = (List) held[1];
      told.append(' ').append(rows.size());
      for (int place = 0; place < evaluators.size(); place++) {
        int passed = 0;
        for (int row = 0; row < rows.size(); row++) {
          StructLike now = asNow((Schema) held[0], (StructLike) rows.get(row), table.schema());
          passed += ((Evaluator) evaluators.get(place)).eval(now) ? 1 : 0;
        }
        told.append(' ').append(passed);
      }
    }
    return told.toString();
  }

  private static StructLike asNow(Schema then, StructLike row, Schema now) {
    StructLike record = (StructLike) GenericRecord.create(now);
    for (int place = 0; place < now.columns().size(); place++) {
      Types.NestedField field = (Types.NestedField) now.columns().get(place);
      Object value = null;
      for (int old = 0; old < then.columns().size(); old++) {
        if (((Types.NestedField) then.columns().get(old)).fieldId() == field.fieldId()) {
          value = row.get(old, Object.class);
        }
      }
      if (value instanceof Integer && field.type().typeId() == Type.TypeID.LONG) {
        value = Long.valueOf(((Integer) value).longValue());
      } else if (value instanceof Float && field.type().typeId() == Type.TypeID.DOUBLE) {
        value = Double.valueOf(((Float) value).doubleValue());
      }
      record.set(place, value);
    }
    return record;
  }
}
