"""What is asked: paths, parameters, bodies and selectors."""
