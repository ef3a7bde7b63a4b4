"""The programs of a Kubernetes cluster: their pins, and what builds them."""
