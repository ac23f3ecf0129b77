"""Parts of the source of a job: paths of files, columns, and a table."""
