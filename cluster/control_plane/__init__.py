"""The control plane: etcd, kube-apiserver, kube-scheduler and kube-controller-manager."""
