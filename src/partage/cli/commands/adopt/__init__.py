"""``partage adopt``: Partage takes a cluster over from gpushare, HAMi or NVIDIA's plugin."""
