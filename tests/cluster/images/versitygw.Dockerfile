# The image of the S3 server of tests and the demonstration: one static program.
FROM scratch
COPY versitygw /versitygw
USER 10001:10001
ENTRYPOINT ["/versitygw"]
