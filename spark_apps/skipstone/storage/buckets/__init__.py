"""Object stores that speak as S3 does: how they are reached, what they answer, and objects as files."""
