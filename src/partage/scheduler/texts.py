"""Texts: the few fixed sentences in which filter refuses a node.

kube-scheduler counts equal texts over all nodes ("37 no card has enough free memory"), so they name
no node, no card and no number; the exact reason is in the refusal itself, which explain tells.
gpushare's own three sentences are in people's alerts, and stay as they are.
"""

from __future__ import annotations

from partage.core.refusals import Code

REASONS = {
    Code.NO_NODES: "the node is not known to Partage (yet)",
    Code.NO_CARDS: "the node has no GPU that Partage knows of",
    Code.NODE_MODE: "the node does not serve such GPU requests",
    Code.NO_SUCH_MODEL: "no GPU of the wanted model",
    Code.NO_SUCH_CARD: "the named GPU is not there",
    Code.TOO_MANY_CARDS: "the node has too few GPUs",
    Code.CARD_TOO_SMALL: "no GPU is large enough",
    Code.TOO_MUCH_TOGETHER: "the containers together ask for more than the node's GPUs have",
    Code.NODE_TAKEN: "another pod has the node for itself",
    Code.NODE_NOT_EMPTY: "the pod wants the node for itself, and it is in use",
    Code.NEIGHBOUR: "pods on the node do not go with this one",
    Code.CARD_SICK: "the GPU is not healthy",
    Code.CARD_TAKEN: "another pod has the GPU for itself",
    Code.CARD_NOT_EMPTY: "no GPU is unused",
    Code.MEMORY: "no GPU has enough free memory",
    Code.COMPUTE: "no GPU has enough free compute",
    Code.TENANTS: "no GPU takes another tenant",
    Code.TOO_FEW_CARDS: "too few GPUs have room at once",
    Code.ARRANGEMENT: "the containers do not fit on the node's GPUs together",
    Code.NOT_FOUND: "no arrangement of the containers was found in time",
}

# The node is the same for all nodes that were asked about, so this is one text, too.
PLACED = "the pod is bound to node {node}, or about to be"
PART = " (kube-scheduler asked about {asked} of {known} nodes)"

GPUSHARE_NOT_FOUND = 'node "{name}" not found'
GPUSHARE_SKIP = "The node {name} is not for GPU share, need skip"
GPUSHARE_INSUFFICIENT = "Insufficient GPU Memory in one device"

NOT_READY = "Partage is still reading the cluster ({kinds}); its log says if that fails"
NOT_LEADING = "this replica of Partage does not lead; ask the one that is ready"
