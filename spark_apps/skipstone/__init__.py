"""The data plane: what notebooks import and what the Spark applications run."""
