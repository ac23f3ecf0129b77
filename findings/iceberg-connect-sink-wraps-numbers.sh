#!/usr/bin/env bash
# Iceberg's sink for Kafka Connect stores other numbers and booleans than the message holds, without an error.
#
# One expects: a value that the table's column cannot hold stops the sink, or goes where its errors go (errors.tolerance,
#   dead letter queue), as a text without a number does.
# What happens: the sink takes the low bits of a number that is too large for an int or long column, cuts fractions, rounds
#   decimals to the scale of the column, makes a too large double an infinite float, and takes each text except "true" as false.
# Versions: iceberg-kafka-connect 1.12.0, Kafka Connect 4.1.1, the sink's own writer (SinkWriter) and Iceberg's reader.
# Why it matters: an identifier that has grown beyond an int in the database gets the number of another row: whoever merges by it
#   changes the wrong row.
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
import java.math.BigDecimal;
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

    static void show(Type type, Object value) throws Exception {
        Map<String, Object> message = new HashMap<>();
        message.put("v", value);
        show(value.getClass().getSimpleName() + " " + value, type, null, message);
    }

    public static void main(String[] arguments) throws Exception {
        CATALOG.initialize("lake", Map.of());
        CATALOG.createNamespace(Namespace.of("lake"));
        show(Types.IntegerType.get(), 4294967297L);
        show(Types.IntegerType.get(), 2.9);
        show(Types.IntegerType.get(), "4294967297");
        show(Types.LongType.get(), new BigDecimal("18446744073709551617"));
        show(Types.LongType.get(), 1e30);
        show(Types.FloatType.get(), 1e300);
        show(Types.DecimalType.of(6, 2), new BigDecimal("1.239"));
        show(Types.DecimalType.of(6, 2), new BigDecimal("12345.678"));
        for (String text : List.of("true", "t", "1", "yes")) show(Types.BooleanType.get(), text);
        show(Types.BooleanType.get(), 1);
    }
}
JAVA
javac -cp "jars/*" Sink.java
seen=$(java -cp "jars/*:." Sink 2>"$folder/log") || { tail -5 "$folder/log" >&2; exit 1; }
echo "$seen"
expected="Long 4294967297 into int: 1
Double 2.9 into int: 2
String 4294967297 into int: an error
BigDecimal 18446744073709551617 into long: 1
Double 1.0E30 into long: 9223372036854775807
Double 1.0E300 into float: Infinity
BigDecimal 1.239 into decimal(6, 2): 1.24
BigDecimal 12345.678 into decimal(6, 2): an error
String true into boolean: true
String t into boolean: false
String 1 into boolean: false
String yes into boolean: false
Integer 1 into boolean: an error"
[ "$seen" = "$expected" ] || { echo "this is not the output of the versions above" >&2; exit 1; }
