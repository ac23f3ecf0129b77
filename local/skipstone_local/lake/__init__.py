"""Tables from Python without manifests: the same requests and runs underneath."""
