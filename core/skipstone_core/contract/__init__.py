"""The contract between the planes: ``requests`` ask for a run, ``reports`` answer. Both are versioned JSON.

The image of a Warehouse (``spec.spark.image``) may be of another release than the operator. An image refuses a request
with a field that it does not know: it cannot do what the field asks for. So a new field has the default None, which is
not written: images of earlier releases do all runs that do not use it. CONTRACT_VERSION is raised when a field goes, or
means something else. The operator ignores fields of reports that it does not know.
"""

CONTRACT_VERSION = 1
