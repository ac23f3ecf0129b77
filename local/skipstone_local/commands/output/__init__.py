"""What kubectl prints: tables, descriptions, YAML. Pure: objects in, text out."""
