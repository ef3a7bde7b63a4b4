"""The extender: the deciding half of Partage in a Kubernetes cluster, beside kube-scheduler."""
