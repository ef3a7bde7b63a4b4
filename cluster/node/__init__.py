"""A real node: containerd and kubelet, in namespaces of their own, with simulated cards."""
