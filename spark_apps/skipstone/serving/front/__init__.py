"""Before an Sql catalog: the part of Iceberg's REST protocol that reads."""
