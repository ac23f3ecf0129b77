"""The rules of Skipstone: pure, shared by the control plane and the data plane."""
