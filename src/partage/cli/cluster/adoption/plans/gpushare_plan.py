"""The plan for gpushare: Partage's programs under gpushare's names.

The extender goes first. It knows what gpushare gave away by the annotations of pods, and gpushare's
plugin starts what it places; so the plugin may stay on any node for any time. Then each node's pod
of the DaemonSet is replaced, one after the other. While either program of a pair may run, their
account has the rights of both; in the end only those of Partage's.
"""

from __future__ import annotations

from collections.abc import Sequence

import partage
from partage.cli.cluster.adoption import adoptions, objects, situation
from partage.cli.cluster.adoption.plans import gpushare_objects, places, plan
from partage.cli.cluster.facts import cluster_facts
from partage.core import errors

Object = objects.Object

_AFTERWARDS = (
    "pods that gpushare started have no fence: 'kubectl rollout restart' their owners when it "
    "suits you"
)


class CannotPlan(errors.PartageError):
    """There is nothing to take over, or more than one."""

    code = "cannot-plan"
    exit_code = 2


def written(seen: situation.Situation) -> Sequence[Object]:
    """The objects beside the two workloads that would be written."""
    if len(seen.deciders) != 1 or len(seen.plugins) != 1:
        return ()
    return _of_rights(seen)


def made(seen: situation.Situation, *, image: str) -> plan.Plan:
    """The plan."""
    if not seen.plugins and not seen.deciders:
        raise CannotPlan(
            "no gpushare runs here: no DaemonSet of its device plugin, no Deployment "
            "gpushare-schd-extender",
            instead="'kubectl get deployments,daemonsets -A' shows what runs",
        )
    decider, plugin = _only(seen.deciders, "extender"), _only(seen.plugins, "device plugin")
    moved = places.places(seen)
    steps: tuple[adoptions.Step | adoptions.NodeStep, ...] = (
        *_first_steps(seen, decider, plugin, image),
        *(adoptions.NodeStep(place=place) for place in moved),
        _last_step(seen, plugin, image),
    )
    name = adoptions.Workload(plugin["metadata"]["namespace"], plugin["metadata"]["name"])
    adoption = adoptions.Adoption(
        system=seen.system.name,
        made_by=partage.__version__,
        plugin=name,
        agent=name,
        unit_mib=gpushare_objects.unit_mib(plugin),
        steps=steps,
    )
    workloads = (objects.label(decider), objects.label(plugin))
    return plan.Plan(
        adoption=adoption,
        runs=workloads,
        kept=(*workloads, *(label for label in seen.beside if label.startswith("Service "))),
        changed=plan.changed(steps),
        left_alone=(*seen.beside, "kube-scheduler's configuration", "every pod that runs"),
        tenants=plan.tenants(seen, moved),
        left=tuple(places.left(seen, moved)),
        first=(*_first(seen), *places.unserved(seen)),
        notes=(f"aliyun.com/gpu-mem counts {gpushare_objects.unit_name(plugin)}, as before",),
        afterwards=(_AFTERWARDS,),
    )


def _only(workloads: Sequence[Object], what: str) -> Object:
    if len(workloads) == 1:
        return workloads[0]
    labels = ", ".join(map(objects.label, workloads)) or "there is none"
    raise CannotPlan(
        f"exactly one {what} of gpushare's can be taken over, and there are {len(workloads)}: "
        f"{labels}",
        instead="docs/install.md tells how to do it by hand",
    )


def _first(seen: situation.Situation) -> list[str]:
    """Two that decide about the same cards would give them away twice."""
    programs = (seen.facts.programs if seen.facts else None) or ()
    deciding = [p.label for p in programs if p.role is cluster_facts.Role.EXTENDER]
    agents = [objects.label(agent) for agent in seen.agents]
    if not deciding and not agents:
        return []
    present = ", ".join([*deciding, *agents])
    doubled = f"{present} of Partage is here already, and would grant the same cards"
    return [f"{doubled}; remove it, or move nodes by hand (docs/install.md)"]


def _of_rights(seen: situation.Situation) -> list[Object]:
    spaces = [made["metadata"]["namespace"] for made in (seen.deciders[0], seen.plugins[0])]
    return [*gpushare_objects.of_extender(spaces[0]), *gpushare_objects.of_agent(spaces[1])]


def _rights(seen: situation.Situation) -> list[Object]:
    """Accounts that are there serve both; others' labels on the rest stay."""
    return [
        gpushare_objects.labelled(made, seen.present.get(objects.path(made)))
        for made in _of_rights(seen)
        if made["kind"] != "ServiceAccount" or objects.path(made) not in seen.present
    ]


def _first_steps(
    seen: situation.Situation, decider: Object, plugin: Object, image: str
) -> tuple[adoptions.Step, ...]:
    rights = _rights(seen)
    extender = gpushare_objects.extender(decider, image)
    agent = gpushare_objects.agent(plugin, image, by_hand=True)
    return (
        adoptions.Step(
            name="rights",
            does="the accounts of both programs get Partage's rights beside gpushare's",
            check="the API server has them",
            undone="the rights are gpushare's again",
            forward=tuple(adoptions.Put(_both(made, seen)) for made in rights),
            backward=tuple(_back(made, seen) for made in rights),
        ),
        adoptions.Step(
            name="extender",
            does=f"{objects.label(decider)} runs Partage's extender",
            check="it is ready, and what it says of every card is what nodes and pods say",
            undone="gpushare's extender runs again, and is ready",
            forward=(adoptions.Put(extender),),
            backward=(adoptions.Put(decider),),
            rollouts=(objects.path(decider),),
            decisions=objects.path(decider),
        ),
        adoptions.Step(
            name="device-plugin",
            does=f"{objects.label(plugin)} has the agent for its next pods; none is replaced yet",
            check="the API server has it",
            undone="it has gpushare's plugin and way of updating again",
            forward=(adoptions.Put(agent),),
            backward=(adoptions.Put(plugin),),
        ),
    )


def _last_step(seen: situation.Situation, plugin: Object, image: str) -> adoptions.Step:
    """The way back begins with it: no pod is replaced by the DaemonSet's controller there."""
    rights = _rights(seen)
    return adoptions.Step(
        name="finish",
        does="updates of the agents go from node to node by themselves; the accounts have "
        "Partage's rights alone",
        check="the API server has it",
        undone="both have rights, and the DaemonSet has gpushare's plugin for its next pods",
        forward=(
            adoptions.Put(gpushare_objects.agent(plugin, image, by_hand=False)),
            *(adoptions.Put(made) for made in rights),
        ),
        backward=(
            *(adoptions.Put(_both(made, seen)) for made in rights),
            adoptions.Put(gpushare_objects.by_hand(plugin)),
        ),
        last=True,
    )


def _both(made: Object, seen: situation.Situation) -> Object:
    return gpushare_objects.both(made, seen.present.get(objects.path(made)))


def _back(made: Object, seen: situation.Situation) -> adoptions.Change:
    original = seen.present.get(objects.path(made))
    if original is None:
        return adoptions.Remove(objects.path(made), objects.label(made))
    return adoptions.Put(original)
