"""Reviews: what the API server is answered, bytes to bytes.

Pods are completed first (:meth:`Reviews.complete`), and judged as they are after all webhooks
(:meth:`Reviews.judge`): refused is what can never work, with the rule of its dialect in the text,
or with what its namespace may have; and what works but surprises is a warning. The same judgement
of a workload's template is a warning only (:meth:`Reviews.advise`), since a template may be applied
before the nodes it needs.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from partage.admission import additions, chances, submitted, wire
from partage.dialects import bound_pods, registry, templates

POD = "Pod"


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """What the administrator chose."""

    runtime_class: str = ""
    scheduler_name: str = ""  # of the kube-scheduler that asks Partage; empty: all do
    refuse_never: bool = True  # what no card of today can hold; else it is a warning


class Judgement(msgspec.Struct, frozen=True):
    """What is said of a pod."""

    refusal: str = ""
    warnings: tuple[str, ...] = ()


class Reviews:
    """Answers, by what is known of the cluster at the moment."""

    def __init__(self, cards: chances.Cluster, options: Options) -> None:
        self._cards = cards
        self._options = options
        self._templates = templates.Templates()

    def complete(self, body: bytes) -> bytes:
        """Add to a pod what its user need not write."""
        request = wire.decode(body)
        pod = _pod(request)
        if pod is None or not (bound_pods.asks(pod) or registry.asks_by_annotation(pod)):
            return wire.allowed(request)
        added = self._added(pod)
        warnings = [f"{wrong} is stored as {name}" for wrong, name in added.respelled.items()]
        return wire.allowed(request, patch=additions.patch(pod, added), warnings=warnings)

    def judge(self, body: bytes) -> bytes:
        """Refuse a pod that can never work."""
        request = wire.decode(body)
        pod = _pod(request)
        if pod is None:
            return wire.allowed(request)
        judgement = self._judged(pod, request.namespace)
        if judgement.refusal:
            text = f"pod {pod.shown}: {judgement.refusal}"
            return wire.refused(request, text, warnings=judgement.warnings)
        return wire.allowed(request, warnings=judgement.warnings)

    def advise(self, body: bytes) -> bytes:
        """Warn of a template whose pods would be refused."""
        request = wire.decode(body)
        kind = request.kind.kind
        if kind not in submitted.WORKLOADS:
            return wire.allowed(request)
        try:
            pod = submitted.templated_pod(kind, request.object)
        except submitted.Unreadable:
            return wire.allowed(request)  # not ours to judge: the API server has read it
        pod = additions.applied(pod, self._added(pod))
        judgement = self._judged(pod, request.namespace)
        refusal = (f"its pods will be refused: {judgement.refusal}",) if judgement.refusal else ()
        where = submitted.template_path(kind)
        return wire.allowed(
            request, warnings=[f"{where}: {text}" for text in (*refusal, *judgement.warnings)]
        )

    def _added(self, pod: submitted.Pod) -> additions.Additions:
        return additions.of(
            pod,
            self._cards.settings,
            runtime_class=self._options.runtime_class,
            scheduler_name=self._options.scheduler_name,
        )

    def _judged(self, pod: submitted.Pod, namespace: str) -> Judgement:
        settings = self._cards.settings
        reading = self._templates.reading(pod, settings)
        if reading.wrong is not None:
            return Judgement(str(reading.wrong))
        if reading.demand is None:
            return Judgement()
        warnings = (*map(str, registry.warnings(pod, settings)), *self._elsewhere(pod))
        if reading.demand.by_claim:
            return Judgement(warnings=warnings)  # claims may come later than their pods
        # Of a group that is on no card: whether it can ever fit is the same for all groups.
        alone = msgspec.structs.replace(reading.demand, spread_group="")
        chance = chances.of(self._cards, alone, namespace, asker="pod")
        if chance.never and self._options.refuse_never:
            return Judgement(chance.never, warnings)
        return Judgement(warnings=(*warnings, *filter(None, (chance.never, chance.waits))))

    def _elsewhere(self, pod: submitted.Pod) -> Iterator[str]:
        """That a pod names a scheduler of which it is not known that it asks Partage."""
        name, ours = pod.spec.scheduler_name, self._options.scheduler_name
        if ours and name not in ("", ours, *registry.scheduler_names()):
            yield (
                f"spec.schedulerName: Partage will not place this pod, unless {name} asks "
                f"Partage's extender, too; remove the field, or write {ours}"
            )


def _pod(request: wire.Request) -> submitted.Pod | None:
    """The pod under review; None where there is nothing to say."""
    if request.kind.kind != POD or request.operation != "CREATE":
        return None
    try:
        return submitted.pod(request.object)
    except submitted.Unreadable as error:
        raise wire.Unreadable(f"the pod cannot be read: {error}") from error
