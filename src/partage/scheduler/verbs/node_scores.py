"""Prioritize: scores of the nodes that fit, best first; a node that is left out has none."""

from __future__ import annotations

import msgspec

from partage.scheduler import decisions, wire

_ARGS = msgspec.json.Decoder(wire.SetArgs)
_BEST = 10  # kube-scheduler's highest score of an extender


class NodeScores:
    """Answers prioritize."""

    def __init__(self, decider: decisions.Decider) -> None:
        self._decider = decider

    def prioritize(self, body: bytes) -> bytes:
        """The scores; none if the request cannot be read."""
        try:
            args = wire.decode(_ARGS, body, "node_names", "nodes")
            names = wire.asked_names(args)
        except wire.WireError:
            return b"[]"
        if args.pod is None or not names:
            return b"[]"
        nodes = self._decider.rank(args.pod, names)
        worst = max(1, len(nodes) - 1)
        scores = (
            _BEST if i == 0 else (_BEST - 1) * (worst - i) // worst for i in range(len(nodes))
        )
        ranked = zip(nodes, scores, strict=True)
        return wire.encode([wire.HostPriority(node, score) for node, score in ranked])
