"""Values of messages in the types of the table's columns."""
