"""What every object has: names, labels, annotations, owners, finalizers. Pure."""
