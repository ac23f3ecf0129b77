"""What is served: groups, resources, and their schemas as OpenAPI."""
