"""The control plane: watches resources, decides, launches runs, writes status."""
