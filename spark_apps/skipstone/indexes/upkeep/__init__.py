"""Keeps indexes small and sound: merges sorted runs, takes out damaged files, finds stale entries."""
