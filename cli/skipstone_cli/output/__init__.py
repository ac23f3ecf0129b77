"""What users see: text for a terminal, and JSON of a stable shape. Everything from the cluster is made safe here."""
