import java.math.BigDecimal;
import java.nio.file.*;
import java.time.*;
import java.util.*;
import org.apache.flink.table.api.*;

/** Tables that Flink's SQL writes through Iceberg's sink, in a catalog of folders: FlinkWriter ROOT. */
public class FlinkWriter {
  static final String[] TEXTS = {
    "plain text of more than sixteen characters", "日本語日本語日本語日本語日本語日本語",
    "\uD83D\uDE00\uD83D\uDE01 emoji beyond the basic plane \uD83D\uDE02", "O''Brien, \"quoted\" and 100% like_this"
  };
  static final String[] FLOATS = {"NaN", "-0.0", "Infinity", "-Infinity", "0.0"};
  static final String COLUMNS = "id bigint not null, txt string, cat string, amount decimal(9, 2), price double, "
      + "`day` date, ts timestamp(6), flag boolean, n int";
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

  public static void main(String[] args) throws Exception {
    root = args[0];
    flink = TableEnvironment.create(EnvironmentSettings.inStreamingMode());
    flink.getConfig().set("parallelism.default", "1");
    flink.getConfig().set("execution.checkpointing.interval", "10s");
    flink.executeSql("create catalog lake with ('type' = 'iceberg', 'catalog-type' = 'hadoop', 'warehouse' = 'file://" + root + "')");
    flink.executeSql("use catalog lake");
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
  }
}
