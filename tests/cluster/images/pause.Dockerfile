# The image that holds a pod's namespaces on the test cluster: one static program.
FROM scratch
COPY pause /pause
USER 65534:65534
ENTRYPOINT ["/pause"]
