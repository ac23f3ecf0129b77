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
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.stream.Stream;

/**
 * Runs Debezium's embedded engine, once for each file of properties that it is given, and writes what comes as sinks do:
 * a message a line, in files below files.folder/TOPIC that get their name when they have files.lines lines.
 *
 * Says "started" when an engine's task has started, and ends when each has seen a message of the topic files.until. It
 * ends with status 1 when an engine fails, and at once when nobody holds its standard input open any more. Where another
 * one was ended, it goes on behind the last whole line, and writes what comes again.
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
            threads.submit(() -> run(settings, done));
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

    private static void run(Properties settings, CountDownLatch done) {
        CountDownLatch seen = new CountDownLatch(1);
        Topics topics = new Topics(settings, seen);
        DebeziumEngine<ChangeEvent<String, String>> engine = DebeziumEngine.create(Json.class)
                .using(settings)
                .using((DebeziumEngine.CompletionCallback) (success, message, error) -> {
                    if (!success) {
                        System.err.println(message);
                        if (error != null) error.printStackTrace();
                        Runtime.getRuntime().halt(1);
                    }
                })
                .using(new DebeziumEngine.ConnectorCallback() {
                    @Override public void taskStarted() {
                        System.out.println("started");
                    }
                })
                .notifying((List<ChangeEvent<String, String>> events,
                        DebeziumEngine.RecordCommitter<ChangeEvent<String, String>> committer) -> {
                    for (ChangeEvent<String, String> event : events) {
                        topics.take(event);
                        committer.markProcessed(event);
                    }
                    topics.flush();
                    committer.markBatchFinished();
                })
                .build();
        Thread runs = new Thread(engine);
        runs.start();
        try (engine) {
            seen.await();
        } catch (InterruptedException | IOException error) {
            throw new IllegalStateException(error);
        }
        topics.close();
        done.countDown();
    }

    /** The files of each topic of one engine. */
    private static final class Topics {
        private final Map<String, Rotated> files = new HashMap<>();
        private final Path folder;
        private final int lines;
        private final String until;
        private final CountDownLatch seen;

        Topics(Properties settings, CountDownLatch seen) {
            folder = Path.of(settings.getProperty("files.folder"));
            lines = Integer.parseInt(settings.getProperty("files.lines"));
            until = settings.getProperty("files.until");
            this.seen = seen;
        }

        synchronized void take(ChangeEvent<String, String> event) {
            if (event.destination().equals(until)) {
                seen.countDown();
                return;
            }
            files.computeIfAbsent(event.destination(), name -> new Rotated(folder.resolve(name), lines))
                    .write(event.value());
        }

        synchronized void flush() {
            files.values().forEach(Rotated::flush);
        }

        synchronized void close() {
            files.values().forEach(Rotated::close);
        }
    }

    /** Files of one topic, one after the other. */
    private static final class Rotated implements Closeable {
        private final Path folder;
        private final int lines;
        private Writer writer;
        private int written;
        private int number;

        Rotated(Path folder, int lines) {
            this.folder = folder;
            this.lines = lines;
            try {
                Files.createDirectories(folder);
                resume();
            } catch (IOException error) {
                throw new UncheckedIOException(error);
            }
        }

        private void resume() throws IOException {
            try (Stream<Path> found = Files.list(folder)) {
                number = (int) found.filter(path -> path.toString().endsWith(".json")).count();
            }
            Path open = folder.resolve("open");
            if (!Files.exists(open)) return;
            String left = Files.readString(open);
            List<String> whole = left.substring(0, left.lastIndexOf('\n') + 1).lines().toList();
            Files.write(open, whole);
            written = whole.size();
            writer = Files.newBufferedWriter(open, StandardOpenOption.APPEND);
        }

        void flush() {
            try {
                if (writer != null) writer.flush();
            } catch (IOException error) {
                throw new UncheckedIOException(error);
            }
        }

        void write(String value) {
            try {
                if (writer == null) {
                    writer = Files.newBufferedWriter(folder.resolve("open"));
                }
                writer.write(value == null ? "null" : value);
                writer.write('\n');
                if (++written >= lines) close();
            } catch (IOException error) {
                throw new UncheckedIOException(error);
            }
        }

        @Override
        public void close() {
            try {
                if (writer == null) return;
                writer.close();
                Path whole = folder.resolve(String.format("%06d.json", ++number));
                Files.move(folder.resolve("open"), whole, StandardCopyOption.ATOMIC_MOVE);
            } catch (IOException error) {
                throw new UncheckedIOException(error);
            }
            writer = null;
            written = 0;
        }
    }
}
