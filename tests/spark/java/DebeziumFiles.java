import io.apicurio.registry.utils.converter.avro.AvroData;
import io.debezium.embedded.Connect;
import io.debezium.engine.ChangeEvent;
import io.debezium.engine.DebeziumEngine;
import io.debezium.engine.format.Json;
import java.io.Closeable;
import java.io.IOException;
import java.io.Reader;
import java.io.UncheckedIOException;
import java.io.Writer;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardCopyOption;
import java.nio.file.StandardOpenOption;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.TreeMap;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import java.util.stream.Stream;
import org.apache.avro.file.DataFileReader;
import org.apache.avro.file.DataFileWriter;
import org.apache.avro.generic.GenericDatumReader;
import org.apache.avro.generic.GenericDatumWriter;
import org.apache.kafka.connect.data.Struct;
import org.apache.kafka.connect.source.SourceRecord;

/**
 * Runs Debezium's embedded engine, once for each file of properties that it is given, and writes what comes as sinks do:
 * files below files.folder/TOPIC that get their name when they have files.lines messages. With files.format=Json a
 * message is a line; with Avro a file is a container of the messages of one schema, and tombstones are left out.
 *
 * Heartbeats and boundaries of transactions go into the folder of the topic files.beside, in files of their own.
 *
 * A row of the topic files.until with an id is a mark: all files get their names. The file NAME.closed lists the files
 * that have theirs, in order, and after those of a mark the line "#" and its id. The mark files.last ends the engine.
 *
 * Says "started" when an engine's task has started, and ends when each has seen its last mark. It ends with status 1
 * when an engine fails, and at once when nobody holds its standard input open any more. Where another one was ended, it
 * goes on behind the last whole message, and writes what comes again.
 */
public final class DebeziumFiles {
    public static void main(String[] names) throws Exception {
        endWithInput();
        ExecutorService threads = Executors.newCachedThreadPool();
        CountDownLatch done = new CountDownLatch(names.length);
        for (String name : names) {
            Properties settings = new Properties();
            try (Reader reader = Files.newBufferedReader(Path.of(name))) {
                settings.load(reader);
            }
            threads.submit(() -> {
                try {
                    run(settings);
                    done.countDown();
                } catch (Throwable error) {
                    fail("an engine cannot run", error);
                }
            });
        }
        done.await();
        System.exit(0);
    }

    private static void endWithInput() {
        Thread watch = new Thread(() -> {
            try {
                while (System.in.read() >= 0) { }
            } catch (IOException closed) {
                // as at its end
            }
            Runtime.getRuntime().halt(2);
        });
        watch.setDaemon(true);
        watch.start();
    }

    private static void fail(String message, Throwable error) {
        System.err.println(message);
        if (error != null) error.printStackTrace();
        Runtime.getRuntime().halt(1);
    }

    private static void run(Properties settings) throws IOException, InterruptedException {
        CountDownLatch seen = new CountDownLatch(1);
        Topics topics = new Topics(settings, seen);
        DebeziumEngine<?> engine = topics.avro ? avro(settings, topics) : json(settings, topics);
        Thread runs = new Thread(engine);
        runs.start();
        try (engine) {
            seen.await();
        }
    }

    private static DebeziumEngine<?> json(Properties settings, Topics topics) {
        return told(DebeziumEngine.create(Json.class), settings)
                .notifying((List<ChangeEvent<String, String>> events,
                        DebeziumEngine.RecordCommitter<ChangeEvent<String, String>> committer) -> {
                    for (ChangeEvent<String, String> event : events) {
                        topics.take(event.destination(), new Message(event.value(), null));
                        committer.markProcessed(event);
                    }
                    topics.flush();
                    committer.markBatchFinished();
                })
                .build();
    }

    private static DebeziumEngine<?> avro(Properties settings, Topics topics) {
        return told(DebeziumEngine.create(Connect.class), settings)
                .notifying((List<ChangeEvent<SourceRecord, SourceRecord>> events,
                        DebeziumEngine.RecordCommitter<ChangeEvent<SourceRecord, SourceRecord>> committer) -> {
                    for (ChangeEvent<SourceRecord, SourceRecord> event : events) {
                        topics.take(event.destination(), new Message(null, event.value()));
                        committer.markProcessed(event);
                    }
                    topics.flush();
                    committer.markBatchFinished();
                })
                .build();
    }

    private static <R> DebeziumEngine.Builder<R> told(DebeziumEngine.Builder<R> builder, Properties settings) {
        return builder.using(settings)
                .using((DebeziumEngine.CompletionCallback) (success, message, error) -> {
                    if (!success) fail(message, error);
                })
                .using(new DebeziumEngine.ConnectorCallback() {
                    @Override public void taskStarted() {
                        System.out.println("started");
                    }
                });
    }

    /** A message as the converter wrote it, or as it is before a converter; a tombstone has no value. */
    private record Message(String text, SourceRecord record) {
        private static final Pattern ID = Pattern.compile("\"id\":(\\d+)");

        /** The id of the row of a message of files.until, which has no other column; -1 where it has none. */
        int id() {
            if (record != null) return record.value() == null ? -1 : idOf((Struct) record.value());
            Matcher found = ID.matcher(text == null ? "" : text);
            return found.find() ? Integer.parseInt(found.group(1)) : -1;
        }

        private static int idOf(Struct value) {
            Struct row = value.schema().field("after") == null ? value : value.getStruct("after");
            return row == null ? -1 : row.getInt32("id");
        }
    }

    /** The files of each topic of one engine. */
    private static final class Topics {
        private final Map<String, Rotated> files = new TreeMap<>();
        private final Path folder;
        private final Path closed;
        private final int lines;
        private final String until;
        private final int last;
        private final String beside;
        private final CountDownLatch seen;
        private int mark;
        final boolean avro;

        Topics(Properties settings, CountDownLatch seen) throws IOException {
            folder = Path.of(settings.getProperty("files.folder"));
            closed = folder.resolve(settings.getProperty("name") + ".closed");
            lines = Integer.parseInt(settings.getProperty("files.lines"));
            until = settings.getProperty("files.until");
            last = Integer.parseInt(settings.getProperty("files.last"));
            beside = settings.getProperty("files.beside", "");
            avro = settings.getProperty("files.format").equals("Avro");
            this.seen = seen;
            if (!Files.exists(closed)) Files.createFile(closed);
            for (String line : Files.readAllLines(closed)) {
                if (line.startsWith("#")) mark = Integer.parseInt(line.substring(1));
            }
            resume(settings.getProperty("topic.prefix") + ".");
        }

        /** Go on with what another process left open: a topic may have no message before the next mark. */
        private void resume(String prefix) throws IOException {
            List<Path> left;
            try (Stream<Path> found = Files.find(folder, 2, (path, is) -> path.getFileName().toString().endsWith("open"))) {
                left = found.filter(path -> path.getParent().getFileName().toString().startsWith(prefix)).toList();
            }
            for (Path path : left) {
                String kind = path.getFileName().toString().replace("open", "");
                String name = path.getParent().getFileName().toString();
                files.put(name + "/" + kind, rotated(folder.resolve(name), kind));
            }
        }

        synchronized void take(String topic, Message message) {
            if (topic.equals(until)) {
                end(message.id());
                return;
            }
            String kind = topic.startsWith("__debezium-heartbeat.") ? "heartbeat-"
                    : topic.endsWith(".transaction") ? "transaction-" : "";
            String name = kind.isEmpty() ? topic : beside;
            if (name.isEmpty()) return;
            files.computeIfAbsent(name + "/" + kind, key -> rotated(folder.resolve(name), kind)).write(message);
        }

        private Rotated rotated(Path topic, String kind) {
            return avro ? new AvroFiles(topic, kind, lines, this::note) : new JsonFiles(topic, kind, lines, this::note);
        }

        private void end(int id) {
            if (id <= mark) return;
            mark = id;
            close();
            note("#" + id);
            if (id == last) seen.countDown();
        }

        private void note(String line) {
            try {
                Files.writeString(closed, line + "\n", StandardOpenOption.APPEND);
            } catch (IOException error) {
                throw new UncheckedIOException(error);
            }
        }

        synchronized void flush() {
            files.values().forEach(Rotated::flush);
        }

        synchronized void close() {
            files.values().forEach(Rotated::close);
        }
    }

    private interface Noted {
        void note(String path);
    }

    /** Files of one topic, one after the other. */
    private abstract static class Rotated implements Closeable {
        final Path open;
        private final Path folder;
        private final String kind;
        private final String ending;
        private final int lines;
        private final Noted noted;
        private int written;
        private int number;

        Rotated(Path folder, String kind, String ending, int lines, Noted noted) {
            this.folder = folder;
            this.kind = kind;
            this.ending = ending;
            this.lines = lines;
            this.noted = noted;
            open = folder.resolve(kind + "open");
            try {
                Files.createDirectories(folder);
                try (Stream<Path> found = Files.list(folder)) {
                    number = (int) found.map(path -> path.getFileName().toString())
                            .filter(name -> name.matches(kind + "\\d+" + ending)).count();
                }
                if (Files.exists(open)) written = resume();
            } catch (IOException error) {
                throw new UncheckedIOException(error);
            }
        }

        /** Go on in the file that another process left open; the number of its messages. */
        abstract int resume() throws IOException;

        abstract boolean isOpen();

        abstract boolean put(Message message) throws IOException;

        abstract void flushed() throws IOException;

        abstract void closed() throws IOException;

        void write(Message message) {
            try {
                if (put(message) && ++written >= lines) close();
            } catch (IOException error) {
                throw new UncheckedIOException(error);
            }
        }

        void flush() {
            try {
                if (isOpen()) flushed();
            } catch (IOException error) {
                throw new UncheckedIOException(error);
            }
        }

        @Override
        public void close() {
            try {
                if (!isOpen()) return;
                closed();
                Path whole = folder.resolve(String.format("%s%06d%s", kind, ++number, ending));
                Files.move(open, whole, StandardCopyOption.ATOMIC_MOVE);
                noted.note(folder.getFileName() + "/" + whole.getFileName());
            } catch (IOException error) {
                throw new UncheckedIOException(error);
            }
            written = 0;
        }
    }

    private static final class JsonFiles extends Rotated {
        private Writer writer;

        JsonFiles(Path folder, String kind, int lines, Noted noted) {
            super(folder, kind, ".json", lines, noted);
        }

        @Override int resume() throws IOException {
            String left = Files.readString(open);
            List<String> whole = List.of(left.substring(0, left.lastIndexOf('\n') + 1).split("(?<=\n)"));
            Files.writeString(open, String.join("", whole));
            return (int) whole.stream().filter(line -> !line.isEmpty()).count();
        }

        @Override boolean isOpen() {
            return writer != null || Files.exists(open);
        }

        @Override boolean put(Message message) throws IOException {
            if (writer == null) {
                writer = Files.newBufferedWriter(open, StandardOpenOption.CREATE, StandardOpenOption.APPEND);
            }
            writer.write(message.text() == null ? "null" : message.text());
            writer.write('\n');
            return true;
        }

        @Override void flushed() throws IOException {
            if (writer != null) writer.flush();
        }

        @Override void closed() throws IOException {
            if (writer != null) writer.close();
            writer = null;
        }
    }

    private static final class AvroFiles extends Rotated {
        private final AvroData data = new AvroData(100);
        private DataFileWriter<Object> writer;
        private org.apache.avro.Schema schema;

        AvroFiles(Path folder, String kind, int lines, Noted noted) {
            super(folder, kind, ".avro", lines, noted);
        }

        @Override int resume() throws IOException {
            List<Object> whole = new ArrayList<>();
            org.apache.avro.Schema left = null;
            try (DataFileReader<Object> reader = new DataFileReader<>(open.toFile(), new GenericDatumReader<>())) {
                left = reader.getSchema();
                while (reader.hasNext()) whole.add(reader.next());
            } catch (IOException | RuntimeException ended) {
                // the file ends within a block
            }
            Files.delete(open);
            if (whole.isEmpty()) return 0;
            begin(left);
            for (Object one : whole) writer.append(one);
            return whole.size();
        }

        private void begin(org.apache.avro.Schema of) throws IOException {
            schema = of;
            writer = new DataFileWriter<>(new GenericDatumWriter<>(of));
            writer.create(of, open.toFile());
        }

        @Override boolean isOpen() {
            return writer != null;
        }

        @Override boolean put(Message message) throws IOException {
            if (message.record().value() == null) return false;
            org.apache.avro.Schema of = data.fromConnectSchema(message.record().valueSchema());
            if (writer != null && !of.equals(schema)) close();
            if (writer == null) begin(of);
            writer.append(data.fromConnectData(message.record().valueSchema(), message.record().value()));
            return true;
        }

        @Override void flushed() throws IOException {
            writer.fSync();
        }

        @Override void closed() throws IOException {
            writer.close();
            writer = null;
        }
    }
}
