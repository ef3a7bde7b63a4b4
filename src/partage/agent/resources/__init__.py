"""What the node offers to its kubelet: a plugin for each resource, and the IDs it is counted by."""
