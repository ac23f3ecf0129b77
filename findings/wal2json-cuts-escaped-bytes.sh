#!/usr/bin/env bash
# wal2json: with `bytea_output = escape`, each bytea loses its first two bytes, and a type in a schema that needs quotes makes
# a message that is not JSON.
#
# One expects: an output plug-in writes the bytes of a bytea in one encoding, whatever the server shows to people, and names
#   of types as text of JSON.
# What happens: it takes off the first two characters of what the server shows, the \x of hexadecimal. With `bytea_output` of
#   `escape` these are two bytes of the value: 'abcd' comes as "cd", and 'xxdead' as "dead", which reads as two other bytes in
#   hexadecimal. The setting is often left over from clients of PostgreSQL 8. And a type's name that begins with a quote is
#   written as it is, so that the type "Shop".state comes as "type":"Shop".state.
# Versions: wal2json 2.5-1+b1, PostgreSQL 15.20-0+deb12u1, Debian 12. The second is as it was in wal2json 2.6.
# Why it matters: a reader of the feed stores other bytes and cannot know, and one line that is not JSON stops it.
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
apt-get download -qq postgresql-15=15.20-0+deb12u1 postgresql-client-15=15.20-0+deb12u1 libpq5=15.20-0+deb12u1 \
  postgresql-15-wal2json=2.5-1+b1 2>/dev/null
for package in ./*.deb; do dpkg-deb --extract "$package" root; done
ln -s root/usr/lib/postgresql/15/bin bin
LD_LIBRARY_PATH=$folder/root/usr/lib/$(uname -m)-linux-gnu
export LD_LIBRARY_PATH
mkdir data sockets
[ "$(id -u)" != 0 ] || chown 65534:65534 data sockets
as_user bin/initdb -D data -U me --auth=trust --no-locale --encoding=UTF8 >/dev/null
as_user bin/pg_ctl -D data -s -w -l sockets/log -o "-c wal_level=logical -c output_plugin_libraries=wal2json -c listen_addresses= -k $folder/sockets" start
started=yes
sql() { bin/psql -h "$folder/sockets" -U me -d postgres -Atq -c "$1"; }
options="null, null, 'format-version', '2', 'include-transaction', 'false', 'add-tables', 'public.t,public.u'"
sql "create table t (b bytea)"
sql "select 'ok' from pg_create_logical_replication_slot('s', 'wal2json')" >/dev/null
sql "insert into t values ('abcd'), ('xxdead'), ('\xdeadbeef')"
seen=$(
  for output in hex escape; do
    bin/psql -h "$folder/sockets" -U me -d postgres -Atq -c "set bytea_output = $output" \
      -c "select '$output', data from pg_logical_slot_peek_changes('s', $options)"
  done
  sql "create schema \"Shop\"" && sql "create type \"Shop\".state as enum ('paid')"
  sql "create table u (v \"Shop\".state)" && sql "insert into u values ('paid')"
  sql "select data from pg_logical_slot_peek_changes('s', $options)" | tail -n 1
)
echo "$seen"
expected=$(cat <<'SEEN'
hex|{"action":"I","schema":"public","table":"t","columns":[{"name":"b","type":"bytea","value":"61626364"}]}
hex|{"action":"I","schema":"public","table":"t","columns":[{"name":"b","type":"bytea","value":"787864656164"}]}
hex|{"action":"I","schema":"public","table":"t","columns":[{"name":"b","type":"bytea","value":"deadbeef"}]}
escape|{"action":"I","schema":"public","table":"t","columns":[{"name":"b","type":"bytea","value":"cd"}]}
escape|{"action":"I","schema":"public","table":"t","columns":[{"name":"b","type":"bytea","value":"dead"}]}
escape|{"action":"I","schema":"public","table":"t","columns":[{"name":"b","type":"bytea","value":"36\\255\\276\\357"}]}
{"action":"I","schema":"public","table":"u","columns":[{"name":"v","type":"Shop".state,"value":"paid"}]}
SEEN
)
[ "$seen" = "$expected" ] || { echo "this is not the output of the versions above" >&2; exit 1; }
