"""The rules of CRDs in CEL: x-kubernetes-validations, with the values before an update where a rule asks for them."""
