#!/usr/bin/env bash
# Debezium: with `binary.handling.mode` set to base64, a large bytea that an update leaves as it is comes as null.
#
# One expects: PostgreSQL does not log a large value that an update leaves as it is, and Debezium writes its placeholder
#   (`unavailable.value.placeholder`) in its place, whichever encoding of bytes is chosen.
# What happens: it does so with `bytes` and `hex`. With `base64` and `base64-url-safe` it writes null, and says nothing.
# Versions: Debezium 3.6.1.Final (embedded engine, pgoutput), PostgreSQL 15.20-0+deb12u1, Debian 12, Java 17.
# Why it matters: a reader cannot tell this null from one that was set, and overwrites the value with null: every update of
#   another column of the row loses it.
set -euo pipefail
folder=$(mktemp -d)
stop() {
  [ -z "${started:-}" ] || as_user "$folder/bin/pg_ctl" -D "$folder/data" -m immediate -s stop
  rm -rf "$folder"
}
trap stop EXIT
as_user() { if [ "$(id -u)" = 0 ]; then setpriv --reuid=65534 --regid=65534 --clear-groups "$@"; else "$@"; fi; }
chmod 755 "$folder"
cd "$folder"
apt-get download -qq postgresql-15=15.20-0+deb12u1 postgresql-client-15=15.20-0+deb12u1 libpq5=15.20-0+deb12u1 2>/dev/null
for package in ./*.deb; do dpkg-deb --extract "$package" root; done
ln -s root/usr/lib/postgresql/15/bin bin
LD_LIBRARY_PATH=$folder/root/usr/lib/$(uname -m)-linux-gnu
export LD_LIBRARY_PATH
cat >pom.xml <<'POM'
<project><modelVersion>4.0.0</modelVersion><groupId>finding</groupId><artifactId>finding</artifactId><version>1</version>
<dependencies>
<dependency><groupId>io.debezium</groupId><artifactId>debezium-embedded</artifactId><version>3.6.1.Final</version></dependency>
<dependency><groupId>io.debezium</groupId><artifactId>debezium-connector-postgres</artifactId><version>3.6.1.Final</version></dependency>
</dependencies></project>
POM
mvn -q dependency:copy-dependencies -DincludeScope=runtime -DoutputDirectory="$folder/jars" >/dev/null
cat >Show.java <<'JAVA'
import io.debezium.engine.ChangeEvent;
import io.debezium.engine.DebeziumEngine;
import io.debezium.engine.format.Json;
import java.util.Properties;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

public class Show {
    public static void main(String[] arguments) throws Exception {
        Properties settings = new Properties();
        for (String argument : arguments) settings.put(argument.split("=", 2)[0], argument.split("=", 2)[1]);
        Pattern after = Pattern.compile("\"after\":\\{\"id\":(\\d+),\"n\":(\\d+),\"b\":(null|\"[^\"]{0,40})");
        DebeziumEngine<ChangeEvent<String, String>> engine = DebeziumEngine.create(Json.class).using(settings)
                .notifying(event -> {
                    Matcher found = after.matcher(String.valueOf(event.value()));
                    if (!found.find()) return;
                    if (found.group(1).equals("2")) Runtime.getRuntime().halt(0);
                    System.out.println(settings.get("binary.handling.mode") + " n=" + found.group(2) + " " + found.group(3));
                    System.out.flush();
                }).build();
        engine.run();
    }
}
JAVA
mkdir data sockets
[ "$(id -u)" != 0 ] || chown 65534:65534 data sockets
port=$(python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
as_user bin/initdb -D data -U me --auth=trust --no-locale --encoding=UTF8 >/dev/null
as_user bin/pg_ctl -D data -s -w -l sockets/log -o "-c wal_level=logical -c listen_addresses=127.0.0.1 -p $port -k $folder/sockets" start
started=yes
sql() { bin/psql -h "$folder/sockets" -p "$port" -U me -d postgres -Atq -c "$1"; }
sql "create table t (id int primary key, n int, b bytea)" && sql "alter table t alter b set storage external"
seen=$(
  for mode in bytes hex base64 base64-url-safe; do
    name=${mode//-/_}
    sql "truncate t" && sql "create publication $name for table t"
    sql "select 'ok' from pg_create_logical_replication_slot('$name', 'pgoutput')" >/dev/null
    sql "insert into t values (1, 1, decode(repeat('abcd', 3000), 'hex'))" && sql "update t set n = 2" && sql "insert into t values (2, 0, '')"
    java -cp 'jars/*' Show.java name=e topic.prefix="$name" binary.handling.mode="$mode" plugin.name=pgoutput \
      connector.class=io.debezium.connector.postgresql.PostgresConnector snapshot.mode=no_data database.hostname=127.0.0.1 \
      database.port="$port" database.user=me database.password=x database.dbname=postgres table.include.list=public.t \
      slot.name="$name" publication.name="$name" publication.autocreate.mode=disabled converter.schemas.enable=false \
      converter.replace.null.with.default=false offset.storage=org.apache.kafka.connect.storage.MemoryOffsetBackingStore 2>/dev/null
  done
)
echo "$seen"
expected=$(cat <<'SEEN'
bytes n=1 "q82rzavNq82rzavNq82rzavNq82rzavNq82rzavN
bytes n=2 "X19kZWJleml1bV91bmF2YWlsYWJsZV92YWx1ZQ==
hex n=1 "abcdabcdabcdabcdabcdabcdabcdabcdabcdabcd
hex n=2 "__debezium_unavailable_value
base64 n=1 "q82rzavNq82rzavNq82rzavNq82rzavNq82rzavN
base64 n=2 null
base64-url-safe n=1 "q82rzavNq82rzavNq82rzavNq82rzavNq82rzavN
base64-url-safe n=2 null
SEEN
)
[ "$seen" = "$expected" ] || { echo "this is not the output of the versions above" >&2; exit 1; }
