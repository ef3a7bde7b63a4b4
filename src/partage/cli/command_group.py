"""The group of all commands of ``partage``.

Commands are imported when they are called: ``partage run`` is between a person and the program, and
should not load what only the extender needs.
"""

from __future__ import annotations

import importlib
import os
import signal

import click

import partage

_COMMANDS = {
    "run": "start a program with a share of a card",
    "ps": "show cards, programs and the queue",
    "top": "the same, live; or a node's pods",
    "watch": "find programs outside their fence",
    "fit": "say whether a share would fit, and where",
    "resize": "change the share of a running program",
    "doctor": "examine this machine",
    "setup": "make one ledger for all users",
    "demo": "watch programs share cards",
    "completion": "print a script for completion in a shell",
    "fence": "show and change limits of tenants",
    "extender": "decide beside kube-scheduler",
    "scheduler-config": "print kube-scheduler's configuration",
    "admission": "refuse and complete pods at submission",
    "agent": "give containers of a node their cards",
    "inspect": "show a cluster's cards and tenants",
    "explain": "say why a pod is pending",
    "claims": "show claims for cards, and what they wait for",
    "cordon": "keep new pods off one card of a node",
    "uncordon": "let new pods onto the card again",
    "adopt": "take a cluster over from another system",
    "cleanup": "remove what an installation left",
    "slurm": "let Slurm share cards, and hold its jobs",
    "simulate": "compare policies on recorded workloads",
}
# What users of other tools may type, and which command does it here.
OTHER_NAMES = {
    "version": "'partage --version' prints it.",
    **dict.fromkeys(
        ("kill", "stop", "cancel", "scancel", "rm", "delete"),
        "'partage top' ends a program: select it and press T. "
        "'partage ps -o wide' shows process ids for kill.",
    ),
    **dict.fromkeys(
        ("queue", "status", "squeue", "list", "ls", "show", "jobs", "nvidia-smi", "smi"),
        "'partage ps' shows cards, programs and the queue.",
    ),
    **dict.fromkeys(
        ("start", "exec", "submit", "srun", "sbatch", "launch", "alloc"),
        "'partage run' starts a program with a share of a card.",
    ),
    **dict.fromkeys(("monitor", "nvitop", "htop"), "'partage top' shows cards and programs live."),
    **dict.fromkeys(("scontrol", "sinfo"), "'partage slurm nodes' shows a Slurm cluster's cards."),
    **dict.fromkeys(("check", "test", "info"), "'partage doctor' examines this machine."),
    **dict.fromkeys(("install", "init"), "'partage setup' makes one ledger for all users."),
    **dict.fromkeys(
        ("limit", "limits", "set", "update"), "'partage resize' changes the share of a program."
    ),
    "drain": "'partage cordon --drain' empties one card of a node.",
    **dict.fromkeys(("uninstall", "leave"), "'partage cleanup' removes what is left afterwards."),
    "describe": "'partage explain' says why a pod is pending.",
    "scheduler": "'partage extender' decides beside kube-scheduler.",
}
# They check the request before they make anything, the folder of simulated cards included.
_CAREFUL = ("run", "fit", "setup")


class _Commands(click.Group):
    """The modules and folders of ``cli/commands``, each named like its command.

    A folder's command is in its module ``command``: what else is in there can then be imported
    without it.
    """

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(_COMMANDS)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Without importing them all."""
        with formatter.section("Commands"):
            formatter.write_dl(list(_COMMANDS.items()))

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in _COMMANDS:
            return None
        name = cmd_name.replace("-", "_")
        module = importlib.import_module(f"partage.cli.commands.{name}")
        if hasattr(module, "__path__"):
            module = importlib.import_module(f"partage.cli.commands.{name}.command")
        command: click.Command = getattr(module, name)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Suggest a command to a user who mistyped one, or who knows it by another name."""
        name = args[0]
        if name not in _COMMANDS and not name.startswith("-") and not ctx.resilient_parsing:
            raise click.UsageError(f"No such command {name!r}.{_suggestion(name)}", ctx)
        return super().resolve_command(ctx, args)


def _suggestion(name: str) -> str:
    if name in OTHER_NAMES:
        return f" {OTHER_NAMES[name]}"
    import difflib

    near = difflib.get_close_matches(name, _COMMANDS, n=1)
    return f" Did you mean {near[0]!r}?" if near else ""


def _simulated(_context: click.Context, _option: click.Parameter, cards: str | None) -> None:
    if cards:
        from partage.local.machine import simulated_driver

        simulated_driver.select(cards, os.environ)


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(partage.__version__, message="partage %(version)s")
@click.option(
    "--simulate",
    metavar="CARDS",
    envvar="PARTAGE_SIMULATE",
    callback=_simulated,
    expose_value=False,
    help="Use simulated cards, for example 2x16GiB; $PARTAGE_SIMULATE.",
)
@click.pass_context
def commands(context: click.Context, /) -> None:
    """Share GPUs: one ledger for every request language."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_DFL:
        # From now on there is something to undo.
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if os.environ.get("PARTAGE_SIMULATE") and context.invoked_subcommand not in _CAREFUL:
        from partage.local.machine import simulated_driver

        simulated_driver.make_state_folder(os.environ)
