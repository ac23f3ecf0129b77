"""What patches make of an object: JSON Patch, merge patches, and what a manager applies."""
