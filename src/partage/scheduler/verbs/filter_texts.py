"""The few fixed sentences with which filter refuses a node.

kube-scheduler counts equal texts over all nodes ("37 no card has enough free memory"), so they name
no node, no card and no number; the exact reason is in the refusal itself, which explain shows. What
a namespace may have and has is the same on all nodes, so that text says it
(:class:`partage.core.totals.Excess`).
gpushare's own three sentences are in people's alerts, and stay as they are.
"""

from __future__ import annotations

from partage.core.refusals import Code

REASONS = {
    Code.NO_NODES: "Partage does not know the node (yet)",
    Code.NO_CARDS: "the node has no GPU that Partage knows of",
    Code.NODE_MODE: "the node does not serve such GPU requests",
    Code.NO_SUCH_MODEL: "no GPU of the requested model",
    Code.NO_SUCH_CARD: "the node does not have the named GPU",
    Code.TOO_MANY_CARDS: "the node has too few GPUs",
    Code.MEMORY_UNKNOWN: "the node's GPUs are of unknown memory, so they are given whole",
    Code.CARD_TOO_SMALL: "no GPU is large enough",
    Code.TOO_MUCH_TOGETHER: "the containers together ask for more than the node's GPUs have",
    Code.NAMESPACE_TOO_SMALL: "the pod asks for more than its namespace may have",
    Code.NODE_TAKEN: "another pod has the node for itself",
    Code.NODE_NOT_EMPTY: "the pod asks for the whole node, and it is in use",
    Code.NEIGHBOUR: "the node has pods that may not run beside this one",
    Code.CARD_UNHEALTHY: "the GPU is not healthy",
    Code.CARD_CORDONED: "the GPU is cordoned",
    Code.CARD_TAKEN: "another pod has the GPU for itself",
    Code.SAME_GROUP: "the GPU has a pod of the same owner (partage.dev/spread)",
    Code.CARD_NOT_EMPTY: "no GPU is unused",
    Code.MEMORY: "no GPU has enough free memory",
    Code.COMPUTE: "no GPU has enough free compute",
    Code.TENANTS: "no GPU accepts another tenant",
    Code.TOO_FEW_CARDS: "too few GPUs have room at once",
    Code.ARRANGEMENT: "the containers do not fit on the node's GPUs together",
    Code.NOT_FOUND: "no arrangement of the containers was found in time",
    Code.NAMESPACE_FULL: "the namespace has what it may have",
}

# The node is the same for all nodes that were asked about, so this is one text, too.
PLACED = "the pod is bound to node {node}, or about to be"
PART = " (kube-scheduler asked about {asked} of {all} nodes)"

GPUSHARE_NOT_FOUND = 'node "{name}" not found'
GPUSHARE_SKIP = "The node {name} is not for GPU share, need skip"
GPUSHARE_INSUFFICIENT = "Insufficient GPU Memory in one device"

NOT_READY = "Partage is still reading the cluster ({kinds}); if that fails, its log says why"
NOT_LEADING = "this replica of Partage does not lead; ask the replica that is ready"
