"""How a run tells what it does: reports, where they go, progress, and the state of the table at the end."""
