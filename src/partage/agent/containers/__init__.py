"""One container, from the kubelet's call to its cards, its fence, and its end."""
