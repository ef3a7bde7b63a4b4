"""The ``partage`` command.

A user's mistake is one line on stderr and exit code 2, in the same words wherever it was found;
a traceback is a bug of ours.
"""

from __future__ import annotations

import os
import sys

import click

import partage
from partage.cli import demo, extender, fit, inspect, simulate
from partage.core import errors


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(partage.__version__, message="partage %(version)s")
def commands() -> None:
    """Share GPUs: one ledger for every request language."""


commands.add_command(demo.demo)
commands.add_command(extender.extender)
commands.add_command(fit.fit)
commands.add_command(inspect.inspect)
commands.add_command(simulate.simulate)


def main() -> None:
    """Run a command; turn what people should read into one line."""
    try:
        code = commands(standalone_mode=False)
        sys.stdout.flush()
    except errors.PartageError as error:
        click.echo(f"partage: {error}", err=True)
        sys.exit(2 if isinstance(error, errors.InputError) else 1)
    except click.exceptions.NoArgsIsHelpError as error:
        click.echo(error.format_message())
        sys.exit(0)
    except click.UsageError as error:
        asked = error.ctx.command_path if error.ctx else "partage"
        click.echo(f"partage: {error.format_message()} See '{asked} --help'.", err=True)
        sys.exit(error.exit_code)
    except click.ClickException as error:
        click.echo(f"partage: {error.format_message()}", err=True)
        sys.exit(error.exit_code)
    except click.Abort:
        sys.exit(130)  # as a shell reports an interrupt
    except OSError as error:
        # The disk is full, or whoever read our output has gone, as `head` does. Python must not
        # complain once more when it closes the stream.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if not isinstance(error, BrokenPipeError):
            click.echo(f"partage: {error.strerror or error}", err=True)
        sys.exit(1)
    sys.exit(code if isinstance(code, int) else 0)
