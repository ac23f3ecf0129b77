import java.math.BigDecimal;
import java.nio.file.*;
import java.time.*;
import java.util.*;
import org.apache.flink.api.common.RuntimeExecutionMode;
import org.apache.flink.api.common.eventtime.WatermarkStrategy;
import org.apache.flink.api.common.typeinfo.*;
import org.apache.flink.api.connector.source.util.ratelimit.RateLimiterStrategy;
import org.apache.flink.api.java.typeutils.RowTypeInfo;
import org.apache.flink.connector.datagen.source.*;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.table.api.*;
import org.apache.flink.table.api.bridge.java.StreamTableEnvironment;
import org.apache.flink.table.connector.ChangelogMode;
import org.apache.flink.types.*;

/**
 * Tables that Flink writes through Iceberg's sink, in a catalog of folders: FlinkWriter ROOT.
 *
 * Those of SQL get a job for each insert. Those of a stream get one job of CHECKPOINTS checkpoints (12 if it is not
 * set), each with upserts and deletes of the same keys, some of one key more than once. With SHARED, the address of a
 * database, the catalog is Iceberg's JDBC catalog "skipstone" there, so that another program may write meanwhile.
 */
public class FlinkWriter {
  static final String[] TEXTS = {
    "plain text of more than sixteen characters", "日本語日本語日本語日本語日本語日本語",
    "\uD83D\uDE00\uD83D\uDE01 emoji beyond the basic plane \uD83D\uDE02", "O''Brien, \"quoted\" and 100% like_this"
  };
  static final String[] FLOATS = {"NaN", "-0.0", "Infinity", "-Infinity", "0.0"};
  static final String COLUMNS = "id bigint not null, txt string, cat string, amount decimal(9, 2), price double, "
      + "`day` date, ts timestamp(6), flag boolean, n int";
  static final String SHARED = System.getenv("SHARED");
  static final String CATALOG = SHARED == null ? "lake" : "skipstone";
  static TableEnvironment flink;
  static String root;

  static String row(int number, String text) {
    boolean nothing = number % 11 == 5;
    LocalDateTime moment = LocalDateTime.of(1969, 12, 25, 0, 0).plusHours(7L * number).plusNanos(1000L * number);
    String price = number % 13 < 5 ? FLOATS[number % 13] : "" + number / 8.0;
    return String.format("(%d, cast(%s as string), 'c%d', cast(%s as decimal(9, 2)), cast('%s' as double), "
        + "cast(%s as date), cast('%s' as timestamp(6)), %s, %d)",
        number, nothing ? "null" : "'" + text + " " + number + "'", number % 5,
        nothing ? "null" : BigDecimal.valueOf(number * 7L - 100, 2).toPlainString(), price,
        nothing ? "null" : "'" + LocalDate.of(1969, 12, 1).plusDays(number) + "'",
        moment.toLocalDate() + " " + moment.toLocalTime() + (moment.getSecond() == 0 && moment.getNano() == 0 ? ":00" : ""),
        number % 2 == 0, number * 3);
  }

  static void insert(String name, int start, int count, String text) throws Exception {
    List<String> rows = new ArrayList<>();
    for (int number = start; number < start + count; number++) {
      rows.add(row(number, text == null ? TEXTS[number % 4] : text));
    }
    flink.executeSql("insert into ns." + name + " values " + String.join(", ", rows)).await();
  }

  static void create(String name, String tail, String... options) {
    List<String> given = new ArrayList<>();
    for (int at = 0; at < options.length; at += 2) {
      given.add("'" + options[at] + "' = '" + options[at + 1] + "'");
    }
    flink.executeSql("create table ns." + name + " (" + COLUMNS + tail + " with (" + String.join(", ", given) + ")");
  }

  static void located(String name, String table, int rows) throws Exception {
    if (SHARED != null) {
      System.out.printf("{\"case\": \"%s\", \"rows\": %d}%n", name, rows);
      return;
    }
    Path folder = Path.of(root, "ns", table, "metadata");
    String version = Files.readString(folder.resolve("version-hint.text")).trim();
    System.out.printf("{\"case\": \"%s\", \"metadata\": \"%s/v%s.metadata.json\", \"rows\": %d}%n", name, folder, version, rows);
  }

  interface Write { void run() throws Exception; }

  static void attempt(String name, Write write) {
    String chosen = System.getenv("CASES");
    if (chosen != null && !chosen.isEmpty() && !Arrays.asList(chosen.split(",")).contains(name)) {
      return;
    }
    try {
      write.run();
    } catch (Exception error) {
      error.printStackTrace();
      String said = String.valueOf(error).split("\n")[0].replace("\\", "/").replace("\"", "'");
      System.out.printf("{\"case\": \"%s\", \"refused\": \"%s\"}%n", name, said);
    }
  }

  static void upserts(String name, String version) throws Exception {
    create(name, ", primary key (id) not enforced)", "format-version", version, "write.upsert.enabled", "true");
    insert(name, 0, 60, null);
    insert(name, 30, 60, "upserted by an engine");
    located(version.equals("2") ? "v2" : "v3", name, 90);
  }

  static final int PER_CHECKPOINT = 16;
  static final int KEYS = 90;
  static final int CHECKPOINTS = Integer.parseInt(Optional.ofNullable(System.getenv("CHECKPOINTS")).orElse("12"));

  /** The change by number: its key, and whether the row goes. */
  static int key(long number) {
    return (int) ((number * 2654435761L & 0xffffffffL) >>> 8) % KEYS;
  }

  static boolean isDelete(long number) {
    return number % 7 == 3;
  }

  static class Changes implements GeneratorFunction<Long, Row> {
    @Override
    public Row map(Long number) {
      int key = key(number);
      Row row = Row.withPositions(isDelete(number) ? RowKind.DELETE : RowKind.UPDATE_AFTER, 9);
      boolean nothing = number % 11 == 5;
      row.setField(0, (long) key);
      row.setField(1, nothing ? null : TEXTS[(int) (number % 4)] + " " + number);
      row.setField(2, "c" + key % 5);
      row.setField(3, nothing ? null : BigDecimal.valueOf(number * 7L - 100, 2));
      row.setField(4, number % 13 < 5 ? Double.valueOf(FLOATS[(int) (number % 13)]) : number / 8.0);
      row.setField(5, nothing ? null : LocalDate.of(1969, 12, 1).plusDays(number % 20000));
      row.setField(6, LocalDateTime.of(1969, 12, 25, 0, 0).plusHours(7 * number).plusNanos(1000 * number));
      row.setField(7, number % 2 == 0);
      row.setField(8, (int) (number * 3));
      return row;
    }
  }

  /** One job whose source waits for a checkpoint after every PER_CHECKPOINT changes. */
  static void streamed(String name, String table, String tail, String key, String... options) throws Exception {
    create(table, tail, options);
    StreamExecutionEnvironment jobs = StreamExecutionEnvironment.getExecutionEnvironment();
    jobs.setRuntimeMode(RuntimeExecutionMode.STREAMING);
    jobs.setParallelism(1);
    jobs.enableCheckpointing(100);
    StreamTableEnvironment tables = StreamTableEnvironment.create(jobs);
    String[] names = {"id", "txt", "cat", "amount", "price", "day", "ts", "flag", "n"};
    TypeInformation<Row> rows = new RowTypeInfo(new TypeInformation<?>[] {Types.LONG, Types.STRING, Types.STRING,
        Types.BIG_DEC, Types.DOUBLE, Types.LOCAL_DATE, Types.LOCAL_DATE_TIME, Types.BOOLEAN, Types.INT}, names);
    long count = (long) CHECKPOINTS * PER_CHECKPOINT;
    DataGeneratorSource<Row> source = new DataGeneratorSource<>(
        new Changes(), count, RateLimiterStrategy.perCheckpoint(PER_CHECKPOINT), rows);
    Schema schema = Schema.newBuilder().column("id", "bigint not null").column("txt", "string")
        .column("cat", key.contains("cat") ? "string not null" : "string").column("amount", "decimal(9, 2)")
        .column("price", "double").column("day", "date").column("ts", "timestamp(6)").column("flag", "boolean")
        .column("n", "int").primaryKey(key.split(", ")).build();
    Table changes = tables.fromChangelogStream(
        jobs.fromSource(source, WatermarkStrategy.noWatermarks(), "changes"), schema, ChangelogMode.upsert());
    catalog(tables);
    changes.executeInsert(CATALOG + ".ns." + table).await();
    Map<Integer, Long> live = new HashMap<>();
    for (long number = 0; number < count; number++) {
      if (isDelete(number)) {
        live.remove(key(number));
      } else {
        live.put(key(number), number);
      }
    }
    located(name, table, live.size());
  }

  static void catalog(TableEnvironment tables) {
    String kind = SHARED == null ? "'catalog-type' = 'hadoop'"
        : "'catalog-impl' = 'org.apache.iceberg.jdbc.JdbcCatalog', 'jdbc.schema-version' = 'V1', 'uri' = '" + SHARED + "'";
    tables.executeSql(
        "create catalog " + CATALOG + " with ('type' = 'iceberg', " + kind + ", 'warehouse' = 'file://" + root + "')");
  }

  public static void main(String[] args) throws Exception {
    root = args[0];
    flink = TableEnvironment.create(EnvironmentSettings.inStreamingMode());
    flink.getConfig().set("parallelism.default", "1");
    flink.getConfig().set("execution.checkpointing.interval", "10s");
    catalog(flink);
    flink.executeSql("use catalog " + CATALOG);
    flink.executeSql("create database if not exists ns");
    attempt("v2", () -> upserts("upserted", "2"));
    attempt("v3", () -> upserts("upserted3", "3"));
    attempt("append", () -> {
      create("appended", ")", "format-version", "2");
      insert("appended", 0, 60, null);
      insert("appended", 60, 60, null);
      located("append", "appended", 120);
    });
    attempt("partitioned", () -> {
      create("parted", ", primary key (id, cat) not enforced) partitioned by (cat)", "format-version", "2",
          "write.upsert.enabled", "true");
      insert("parted", 0, 60, null);
      insert("parted", 30, 60, "upserted by an engine");
      located("partitioned", "parted", 90);
    });
    String byId = ", primary key (id) not enforced)", byBoth = ", primary key (id, cat) not enforced)";
    String upsert = "write.upsert.enabled", version = "format-version", format = "write.format.default";
    attempt("stream-v2", () -> streamed("stream-v2", "streamed2", byId, "id", version, "2", upsert, "true"));
    attempt("stream-v3", () -> streamed("stream-v3", "streamed3", byId, "id", version, "3", upsert, "true"));
    attempt("stream-parted", () -> streamed("stream-parted", "streamed_parted", byBoth + " partitioned by (cat)", "id, cat",
        version, "2", upsert, "true"));
    attempt("stream-avro", () -> streamed("stream-avro", "streamed_avro", byId, "id", version, "2", upsert, "true",
        format, "avro"));
    attempt("stream-orc", () -> streamed("stream-orc", "streamed_orc", byId, "id", version, "2", upsert, "true",
        format, "orc"));
  }
}
