"""Change feeds as tools write them: messages become rows of the table, with what happened to each and its order."""
