import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import org.apache.iceberg.PartitionKey;
import org.apache.iceberg.PartitionSpec;
import org.apache.iceberg.PartitionSpecParser;
import org.apache.iceberg.Schema;
import org.apache.iceberg.SchemaParser;
import org.apache.iceberg.StructLike;
import org.apache.iceberg.expressions.Evaluator;
import org.apache.iceberg.expressions.Expression;
import org.apache.iceberg.expressions.ExpressionParser;
import org.apache.iceberg.expressions.ExpressionUtil;
import org.apache.iceberg.expressions.Expressions;
import org.apache.iceberg.expressions.Projections;

public class Partitions {
  private static final ObjectMapper JSON = new ObjectMapper();

  /**
   * The filter as the library writes it, then lines: whether it selects whole partitions; of each row whether it
   * passes; of each row whether a file of its partition is planned. A line R and why if the filter is refused.
   */
  public static String judge(String schemaJson, String specJson, String filterJson, String rowsJson, boolean caseSensitive)
      throws Exception {
    Schema schema = SchemaParser.fromJson(schemaJson);
    PartitionSpec spec = PartitionSpecParser.fromJson(schema, specJson);
    String written;
    Evaluator rowEvaluator;
    Evaluator planned;
    boolean selects;
    try {
      Expression filter = ExpressionParser.fromJson(filterJson);
      written = ExpressionParser.toJson(filter);
      Expression positive = Judge.withoutNulls(Expressions.rewriteNot(filter), schema.asStruct(), caseSensitive);
      rowEvaluator = new Evaluator(schema.asStruct(), positive, caseSensitive);
      Expression projected = Projections.inclusive(spec, caseSensitive).project(filter);
      planned = new Evaluator(spec.partitionType(), projected, caseSensitive);
      selects = ExpressionUtil.selectsPartitions(filter, spec, caseSensitive);
    } catch (RuntimeException refusal) {
      return "R" + refusal;
    }
    StringBuilder passes = new StringBuilder();
    StringBuilder plans = new StringBuilder();
    JsonNode rows = JSON.readTree(rowsJson);
    PartitionKey key = new PartitionKey(spec, schema);
    for (int row = 0; row < rows.size(); row++) {
      StructLike record = Judge.record(schema, (JsonNode) rows.get(row));
      key.partition(record);
      passes.append(rowEvaluator.eval(record) ? 'T' : 'F');
      plans.append(planned.eval(key) ? 'T' : 'F');
    }
    return written + "\n" + (selects ? 'T' : 'F') + "\n" + passes + "\n" + plans;
  }
}
