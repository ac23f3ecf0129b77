"""Data manifests from Avro to Arrow, kept in memory and on this machine. Knows no table and no snapshot."""
