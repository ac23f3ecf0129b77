import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.math.BigDecimal;
import java.nio.ByteBuffer;
import java.util.List;
import java.util.UUID;
import org.apache.iceberg.Schema;
import org.apache.iceberg.SchemaParser;
import org.apache.iceberg.StructLike;
import org.apache.iceberg.data.GenericRecord;
import org.apache.iceberg.expressions.And;
import org.apache.iceberg.expressions.Evaluator;
import org.apache.iceberg.expressions.Expression;
import org.apache.iceberg.expressions.ExpressionParser;
import org.apache.iceberg.expressions.Expressions;
import org.apache.iceberg.expressions.Or;
import org.apache.iceberg.expressions.UnboundPredicate;
import org.apache.iceberg.expressions.UnboundTerm;
import org.apache.iceberg.types.Type;
import org.apache.iceberg.types.Types;

public class Judge {
  private static final ObjectMapper JSON = new ObjectMapper();

  /** The filter as the library writes it, a line feed, then T or F for each row; a line R and why if it is refused. */
  public static String judge(String schemaJson, String filterJson, String rowsJson, boolean caseSensitive)
      throws Exception {
    Schema schema = SchemaParser.fromJson(schemaJson);
    String written;
    Evaluator evaluator;
    try {
      Expression filter = ExpressionParser.fromJson(filterJson);
      written = ExpressionParser.toJson(filter);
      Expression positive = withoutNulls(Expressions.rewriteNot(filter), schema.asStruct(), caseSensitive);
      evaluator = new Evaluator(schema.asStruct(), positive, caseSensitive);
    } catch (RuntimeException refusal) {
      return "R" + refusal;
    }
    StringBuilder verdicts = new StringBuilder();
    JsonNode rows = JSON.readTree(rowsJson);
    for (int row = 0; row < rows.size(); row++) {
      verdicts.append(evaluator.eval(record(schema, (JsonNode) rows.get(row))) ? 'T' : 'F');
    }
    return written + "\n" + verdicts;
  }

  /**
   * Order puts null first when rows are evaluated, while scans leave it out by its counts: as all engines mean it. What
   * compares with a value beyond the type is not a test, for scans either.
   */
  public static Expression withoutNulls(Expression filter, Types.StructType struct, boolean caseSensitive) {
    if (filter instanceof And) {
      return Expressions.and(
          withoutNulls(((And) filter).left(), struct, caseSensitive),
          withoutNulls(((And) filter).right(), struct, caseSensitive));
    }
    if (filter instanceof Or) {
      return Expressions.or(
          withoutNulls(((Or) filter).left(), struct, caseSensitive),
          withoutNulls(((Or) filter).right(), struct, caseSensitive));
    }
    if (filter.op() != Expression.Operation.LT && filter.op() != Expression.Operation.LT_EQ) {
      return filter;
    }
    Expression bound = ((UnboundPredicate) filter).bind(struct, caseSensitive);
    boolean isTest = bound.op() != Expression.Operation.TRUE && bound.op() != Expression.Operation.FALSE;
    Expression notNull = Expressions.notNull((UnboundTerm) ((UnboundPredicate) filter).term());
    return isTest ? Expressions.and(notNull, filter) : filter;
  }

  public static StructLike record(Schema schema, JsonNode row) {
    StructLike record = (StructLike) GenericRecord.create(schema);
    List fields = schema.columns();
    for (int place = 0; place < fields.size(); place++) {
      record.set(place, value(((Types.NestedField) fields.get(place)).type(), (JsonNode) row.get(place)));
    }
    return record;
  }

  private static Object value(Type type, JsonNode cell) {
    if (cell.isNull()) {
      return null;
    }
    String text = cell.asText();
    switch (type.typeId()) {
      case BOOLEAN: return Boolean.valueOf(text);
      case INTEGER:
      case DATE: return Integer.valueOf(text);
      case LONG:
      case TIMESTAMP: return Long.valueOf(text);
      case FLOAT: return Float.valueOf(text);
      case DOUBLE: return Double.valueOf(text);
      case DECIMAL: return new BigDecimal(text);
      case STRING: return text;
      case UUID: return UUID.fromString(text);
      default: return ByteBuffer.wrap(bytes(text));
    }
  }

  private static byte[] bytes(String hex) {
    byte[] found = new byte[hex.length() / 2];
    for (int place = 0; place < found.length; place++) {
      found[place] = (byte) Integer.parseInt(hex.substring(2 * place, 2 * place + 2), 16);
    }
    return found;
  }
}
