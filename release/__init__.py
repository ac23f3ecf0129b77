"""Images, chart and wheel of one version, signed, in a registry. Called by `make images` and `make release`."""
