#!/usr/bin/env bash
# Iceberg's sink for Kafka Connect takes Debezium's microseconds for milliseconds, and drops zones.
#
# One expects: a number that its schema names io.debezium.time.MicroTimestamp (what Debezium writes for a timestamp unless it is
#   told otherwise) becomes this moment in a timestamp column, or is an error. A text with a zone in a column without one is an
#   error, or becomes the moment in UTC.
# What happens: each number is taken as milliseconds since 1970, whatever its schema names: November 2023 becomes the year 55840,
#   and one millisecond after midnight becomes a second. The zone of a text is cut off, not converted.
# Versions: iceberg-kafka-connect 1.12.0, Kafka Connect 4.1.1, the sink's own writer (SinkWriter) and Iceberg's reader.
# Why it matters: nothing fails, filters by time find nothing, and partitions by day get a folder for each moment.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
cat >pom.xml <<'XML'
<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>example</groupId><artifactId>sink</artifactId><version>1</version>
  <dependencies>
    <dependency><groupId>org.apache.iceberg</groupId><artifactId>iceberg-kafka-connect</artifactId><version>1.12.0</version></dependency>
    <dependency><groupId>org.apache.iceberg</groupId><artifactId>iceberg-data</artifactId><version>1.12.0</version></dependency>
    <dependency><groupId>org.apache.iceberg</groupId><artifactId>iceberg-parquet</artifactId><version>1.12.0</version></dependency>
    <dependency><groupId>org.apache.kafka</groupId><artifactId>connect-api</artifactId><version>4.1.1</version></dependency>
    <dependency><groupId>org.apache.kafka</groupId><artifactId>connect-json</artifactId><version>4.1.1</version></dependency>
    <dependency><groupId>org.apache.hadoop</groupId><artifactId>hadoop-client-api</artifactId><version>3.4.2</version></dependency>
    <dependency><groupId>org.apache.hadoop</groupId><artifactId>hadoop-client-runtime</artifactId><version>3.4.2</version></dependency>
    <dependency><groupId>org.slf4j</groupId><artifactId>slf4j-simple</artifactId><version>2.0.17</version></dependency>
  </dependencies>
</project>
XML
mvn -q -B dependency:copy-dependencies -DincludeScope=runtime -DoutputDirectory=jars >"$folder/log"
cat >Sink.java <<'JAVA'
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.iceberg.AppendFiles;
import org.apache.iceberg.DataFile;
import org.apache.iceberg.Table;
import org.apache.iceberg.catalog.Namespace;
import org.apache.iceberg.catalog.TableIdentifier;
import org.apache.iceberg.connect.IcebergSinkConfig;
import org.apache.iceberg.connect.data.IcebergWriterResult;
import org.apache.iceberg.connect.data.SinkWriter;
import org.apache.iceberg.data.IcebergGenerics;
import org.apache.iceberg.inmemory.InMemoryCatalog;
import org.apache.iceberg.io.CloseableIterable;
import org.apache.iceberg.types.Type;
import org.apache.iceberg.types.Types;
import org.apache.kafka.connect.data.Schema;
import org.apache.kafka.connect.data.SchemaBuilder;
import org.apache.kafka.connect.data.Struct;
import org.apache.kafka.connect.sink.SinkRecord;

public class Sink {
    static final InMemoryCatalog CATALOG = new InMemoryCatalog();
    static int tables = 0;

    /** Has the sink's writer write one message to a new table, and reads the value from the committed table. */
    static void show(String sent, Type type, Schema schema, Object message) throws Exception {
        TableIdentifier name = TableIdentifier.of("lake", "t" + tables++);
        Table table = CATALOG.createTable(name, new org.apache.iceberg.Schema(Types.NestedField.optional(1, "v", type)));
        IcebergSinkConfig config = new IcebergSinkConfig(
            Map.of("name", "sink", "topics", "changes", "iceberg.tables", name.toString(), "iceberg.catalog.type", "hadoop"));
        String read = null;
        try {
            SinkWriter writer = new SinkWriter(CATALOG, config);
            writer.save(List.of(new SinkRecord("changes", 0, null, null, schema, message, 0)));
            AppendFiles append = table.newAppend();
            for (IcebergWriterResult result : writer.completeWrite().writerResults())
                for (DataFile file : result.dataFiles()) append.appendFile(file);
            append.commit();
            try (CloseableIterable<org.apache.iceberg.data.Record> rows = IcebergGenerics.read(table).build()) {
                for (org.apache.iceberg.data.Record row : rows) read = String.valueOf(row.getField("v"));
            }
        } catch (org.apache.kafka.connect.errors.DataException error) {
            read = "an error";
        }
        System.out.println(sent + " into " + type + ": " + read);
    }

    static void show(Type type, String named, long value) throws Exception {
        Schema field = SchemaBuilder.int64().name(named).build();
        Schema schema = SchemaBuilder.struct().field("v", field).build();
        show(named + " " + value, type, schema, new Struct(schema).put("v", value));
    }

    static void show(Type type, Object value) throws Exception {
        Map<String, Object> message = new HashMap<>();
        message.put("v", value);
        show(value.getClass().getSimpleName() + " " + value, type, null, message);
    }

    public static void main(String[] arguments) throws Exception {
        CATALOG.initialize("lake", Map.of());
        CATALOG.createNamespace(Namespace.of("lake"));
        show(Types.TimestampType.withoutZone(), "io.debezium.time.Timestamp", 1700000000000L);
        show(Types.TimestampType.withoutZone(), "io.debezium.time.MicroTimestamp", 1700000000000000L);
        show(Types.TimestampType.withZone(), "io.debezium.time.MicroTimestamp", 1700000000000000L);
        show(Types.TimestampType.withoutZone(), 1700000000000000L);
        show(Types.TimeType.get(), "io.debezium.time.MicroTime", 1000L);
        show(Types.TimeType.get(), "io.debezium.time.MicroTime", 37800000000L);
        show(Types.TimestampType.withoutZone(), "2026-01-01T10:00:00+02:00");
        show(Types.TimestampType.withZone(), "2026-01-01T10:00:00+02:00");
    }
}
JAVA
javac -cp "jars/*" Sink.java
seen=$(java -cp "jars/*:." Sink 2>"$folder/log") || { tail -5 "$folder/log" >&2; exit 1; }
echo "$seen"
expected="io.debezium.time.Timestamp 1700000000000 into timestamp: 2023-11-14T22:13:20
io.debezium.time.MicroTimestamp 1700000000000000 into timestamp: +55840-11-08T22:13:20
io.debezium.time.MicroTimestamp 1700000000000000 into timestamptz: +55840-11-08T22:13:20Z
Long 1700000000000000 into timestamp: +55840-11-08T22:13:20
io.debezium.time.MicroTime 1000 into time: 00:00:01
io.debezium.time.MicroTime 37800000000 into time: an error
String 2026-01-01T10:00:00+02:00 into timestamp: 2026-01-01T10:00
String 2026-01-01T10:00:00+02:00 into timestamptz: 2026-01-01T08:00Z"
[ "$seen" = "$expected" ] || { echo "this is not the output of the versions above" >&2; exit 1; }
