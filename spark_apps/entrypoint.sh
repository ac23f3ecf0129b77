#!/bin/bash
# What a container of the data plane runs. The operator starts a run with "app <kind>". Spark starts its executor
# pods with the single argument "executor" and passes everything else in the environment. Any other argument list
# is a command.
set -euo pipefail

# Authorities of the Warehouse's own are trusted besides those of the system: by Python, by Arrow and by Java. Each
# takes one file with all of them.
refuse() {
  echo "the certificates in $SKIPSTONE_CA_BUNDLE cannot be used: $1; put PEM certificates of authorities there" >&2
  exit 1
}

trust() {
  local folder certificates one count=0
  [ -r "$SKIPSTONE_CA_BUNDLE" ] || refuse "there is no such file"
  folder="$(mktemp -d)"
  certificates="$folder/ca.pem"
  cat "${SYSTEM_CERTIFICATES:-/etc/ssl/certs/ca-certificates.crt}" "$SKIPSTONE_CA_BUNDLE" > "$certificates"
  export SSL_CERT_FILE="$certificates" REQUESTS_CA_BUNDLE="$certificates"
  cp -L "$JAVA_HOME/lib/security/cacerts" "$folder/cacerts"
  chmod u+w "$folder/cacerts"
  csplit --quiet --elide-empty-files --prefix "$folder/own-" "$SKIPSTONE_CA_BUNDLE" '/-BEGIN CERTIFICATE-/' '{*}'
  for one in "$folder"/own-*; do
    if [ -f "$one" ] && grep -q -- '-BEGIN CERTIFICATE-' "$one"; then
      count=$((count + 1))
      "$JAVA_HOME/bin/keytool" -importcert -noprompt -keystore "$folder/cacerts" -storepass changeit \
        -alias "skipstone-${one##*-}" -file "$one" > /dev/null 2>&1 || refuse "number $count is no certificate"
    fi
  done
  [ "$count" -gt 0 ] || refuse "there are none"
  export JAVA_TOOL_OPTIONS="${JAVA_TOOL_OPTIONS:-} -Djavax.net.ssl.trustStore=$folder/cacerts"
}

if [ -n "${SKIPSTONE_CA_BUNDLE:-}" ]; then
  trust
fi

# Whoever has keys asks no metadata service of the machine: where none answers, Arrow waits for seconds each time it
# opens a bucket.
if [ -n "${AWS_ACCESS_KEY_ID:-}" ] && [ -n "${AWS_SECRET_ACCESS_KEY:-}" ]; then
  export AWS_EC2_METADATA_DISABLED="${AWS_EC2_METADATA_DISABLED:-true}"
fi

if [ "${1:-}" = app ]; then
  exec python -P -m "skipstone.apps.${2:?which app?}"
fi

if [ "${1:-}" != executor ]; then
  exec "$@"
fi

options=()
for ((index = 0; ; index++)); do
  name="SPARK_JAVA_OPT_$index"
  [ -n "${!name+set}" ] || break
  options+=("${!name}")
done

exec "$JAVA_HOME/bin/java" -XX:SharedArchiveFile=/opt/skipstone/classes.jsa "${options[@]}" \
  "-Xms$SPARK_EXECUTOR_MEMORY" "-Xmx$SPARK_EXECUTOR_MEMORY" \
  -cp "/opt/skipstone/classpath.jar:${SPARK_CLASSPATH:+$SPARK_CLASSPATH:}$SPARK_HOME/conf:$SPARK_HOME/jars/*" \
  org.apache.spark.scheduler.cluster.k8s.KubernetesExecutorBackend \
  --driver-url "$SPARK_DRIVER_URL" \
  --executor-id "$SPARK_EXECUTOR_ID" \
  --cores "$SPARK_EXECUTOR_CORES" \
  --app-id "$SPARK_APPLICATION_ID" \
  --hostname "$SPARK_EXECUTOR_POD_IP" \
  --resourceProfileId "$SPARK_RESOURCE_PROFILE_ID" \
  --podName "$SPARK_EXECUTOR_POD_NAME"
