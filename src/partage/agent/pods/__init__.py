"""The pods of the node, and which of their containers the kubelet means."""
