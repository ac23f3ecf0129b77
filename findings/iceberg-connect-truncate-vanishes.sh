#!/usr/bin/env bash
# Iceberg's transforms for Kafka Connect leave out the message of a truncated table, and take what they do not know as inserts.
#
# One expects: a connector is told to send TRUNCATE (Debezium leaves it out unless skipped.operations is none, DMS sends it
#   as truncate-table). The transform that prepares such messages for Iceberg's sink passes it on, or stops at it.
# What happens: DebeziumTransform has a branch for updates and one for deletes, and takes every other operation as an insert.
#   A truncation has no row after it. If messages carry no schema, the transform then returns null, which Kafka Connect takes
#   as "leave this message out"; only the level of debugging logs it. If they carry one, the same message is an error.
#   DmsTransform leaves it out, too. A message with an unknown operation and a row becomes an insert (_cdc.op = I).
# Versions: iceberg-kafka-connect-transforms 1.12.0, Kafka Connect 4.1.1.
# Why it matters: the rows of a truncated table stay in the lake for good, and the log of changes that the sink writes does not
#   show that they are gone. Nobody who merges this log can know.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
cat >pom.xml <<'XML'
<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>example</groupId><artifactId>transforms</artifactId><version>1</version>
  <dependencies>
    <dependency><groupId>org.apache.iceberg</groupId><artifactId>iceberg-kafka-connect-transforms</artifactId><version>1.12.0</version></dependency>
    <dependency><groupId>org.apache.kafka</groupId><artifactId>connect-transforms</artifactId><version>4.1.1</version></dependency>
    <dependency><groupId>org.slf4j</groupId><artifactId>slf4j-simple</artifactId><version>2.0.17</version></dependency>
  </dependencies>
</project>
XML
mvn -q -B dependency:copy-dependencies -DincludeScope=runtime -DoutputDirectory=jars >"$folder/log"
cat >Truncated.java <<'JAVA'
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.apache.iceberg.connect.transforms.DebeziumTransform;
import org.apache.iceberg.connect.transforms.DmsTransform;
import org.apache.kafka.connect.data.Schema;
import org.apache.kafka.connect.data.SchemaBuilder;
import org.apache.kafka.connect.data.Struct;
import org.apache.kafka.connect.sink.SinkRecord;
import org.apache.kafka.connect.transforms.Transformation;

public class Truncated {
    static final Map<String, Object> SOURCE = map("db", "shop", "schema", "public", "table", "orders");

    static Map<String, Object> map(Object... parts) {
        Map<String, Object> values = new LinkedHashMap<>();
        for (int place = 0; place < parts.length; place += 2) values.put((String) parts[place], parts[place + 1]);
        return values;
    }

    static void show(String what, Transformation<SinkRecord> transform, Schema schema, Object value) {
        SinkRecord result;
        try {
            result = transform.apply(new SinkRecord("orders", 0, null, null, schema, value, 0));
        } catch (RuntimeException error) {
            System.out.println(what + ": an error, " + error.getClass().getSimpleName());
            return;
        }
        Object change = null;
        if (result != null && result.value() instanceof Struct) change = ((Struct) result.value()).getStruct("_cdc").get("op");
        else if (result != null) change = ((Map<?, ?>) ((Map<?, ?>) result.value()).get("_cdc")).get("op");
        System.out.println(what + ": " + (result == null ? "left out" : "passed on as " + change));
    }

    static Struct withSchema(String operation, boolean before, boolean after) {
        Schema row = SchemaBuilder.struct().optional().field("id", Schema.INT32_SCHEMA).build();
        Schema source = SchemaBuilder.struct().field("db", Schema.STRING_SCHEMA).field("schema", Schema.STRING_SCHEMA)
            .field("table", Schema.STRING_SCHEMA).build();
        Schema envelope = SchemaBuilder.struct().field("before", row).field("after", row).field("source", source)
            .field("op", Schema.STRING_SCHEMA).field("ts_ms", Schema.INT64_SCHEMA).build();
        Struct value = new Struct(envelope).put("op", operation).put("ts_ms", 1700000000000L)
            .put("source", new Struct(source).put("db", "shop").put("schema", "public").put("table", "orders"));
        if (before) value.put("before", new Struct(row).put("id", 1));
        if (after) value.put("after", new Struct(row).put("id", 1));
        return value;
    }

    public static void main(String[] arguments) {
        DebeziumTransform<SinkRecord> debezium = new DebeziumTransform<>();
        debezium.configure(Map.of());
        for (String operation : List.of("c", "u", "d", "t")) {
            Map<String, Object> before = "ud".contains(operation) ? map("id", 1) : null;
            Map<String, Object> after = "cu".contains(operation) ? map("id", 1) : null;
            show("Debezium " + operation, debezium, null,
                map("op", operation, "before", before, "after", after, "source", SOURCE, "ts_ms", 1700000000000L));
            Struct value = withSchema(operation, before != null, after != null);
            show("Debezium " + operation + " with a schema", debezium, value.schema(), value);
        }
        show("Debezium x", debezium, null, map("op", "x", "before", null, "after", map("id", 1), "source", SOURCE, "ts_ms", 1L));
        DmsTransform<SinkRecord> dms = new DmsTransform<>();
        for (String operation : List.of("insert", "update", "delete", "truncate-table"))
            show("DMS " + operation, dms, null, map(
                "data", operation.contains("table") ? null : map("id", 1),
                "metadata", map("operation", operation, "schema-name", "public", "table-name", "orders", "timestamp", "2026-01-01T00:00:00Z")));
    }
}
JAVA
javac -cp "jars/*" Truncated.java
seen=$(java -cp "jars/*:." Truncated 2>"$folder/log") || { tail -5 "$folder/log" >&2; exit 1; }
echo "$seen"
expected="Debezium c: passed on as I
Debezium c with a schema: passed on as I
Debezium u: passed on as U
Debezium u with a schema: passed on as U
Debezium d: passed on as D
Debezium d with a schema: passed on as D
Debezium t: left out
Debezium t with a schema: an error, NullPointerException
Debezium x: passed on as I
DMS insert: passed on as I
DMS update: passed on as U
DMS delete: passed on as D
DMS truncate-table: left out"
[ "$seen" = "$expected" ] || { echo "this is not the output of the versions above" >&2; exit 1; }
