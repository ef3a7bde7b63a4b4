"""``partage completion``: the script with which a shell completes commands and names."""

from __future__ import annotations

import click
from click import shell_completion

_EXAMPLES = """\b
Examples:
  eval "$(partage completion bash)"     in ~/.bashrc
  eval "$(partage completion zsh)"      in ~/.zshrc, after compinit
  partage completion fish > ~/.config/fish/completions/partage.fish
"""


@click.command(epilog=_EXAMPLES)
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def completion(context: click.Context, /, *, shell: str) -> None:
    """Print the script that lets a shell complete `partage` commands, options and names."""
    root = context.find_root()
    kind = shell_completion.get_completion_class(shell)
    if kind is not None:
        text = kind(root.command, {}, "partage", "_PARTAGE_COMPLETE").source()
        click.echo(text)
