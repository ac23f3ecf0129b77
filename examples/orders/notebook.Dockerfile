# The image of runs, with JupyterLab and a JDBC driver for the SQLite catalog.
ARG SPARK_IMAGE=skipstone-spark:0.1.0
FROM ${SPARK_IMAGE}
USER root
RUN java -cp "/opt/skipstone/spark/jars/*" org.apache.ivy.Main -warn -m2compatible -notransitive -confs default \
      -cache /tmp/ivy -dependency org.xerial sqlite-jdbc 3.50.3.0 \
      -retrieve "/opt/skipstone/spark/jars/[artifact]-[revision].[ext]" \
 && rm -rf /tmp/ivy \
 && /opt/uv/bin/uv pip install --quiet --no-cache --python /opt/skipstone jupyterlab
USER 10001:10001
