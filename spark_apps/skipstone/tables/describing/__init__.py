"""Files of a snapshot as the JSON of Iceberg's scan tasks, made column by column."""
