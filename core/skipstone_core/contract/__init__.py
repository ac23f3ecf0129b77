"""The contract between the planes: ``requests`` ask for a run, ``reports`` answer. Both are versioned JSON."""

CONTRACT_VERSION = 1
