"""An agent's report, fetched for commands on its node.

With the standard library alone, and without the proxy that the environment may name for the web:
the agent is on this node, or near.
"""

from __future__ import annotations

import http.client
import urllib.error
import urllib.parse
import urllib.request

import msgspec

from partage.agent import reports
from partage.cli.sources import agent_address
from partage.core import errors

_TIMEOUT_S = 3.0
_MOST_BYTES = 16 << 20  # of a report
_REPORT = msgspec.json.Decoder(reports.Report)


class CannotFetch(errors.PartageError):
    """No agent answered with its report."""

    code = "cannot-fetch-report"


def fetch(url: str) -> reports.Report:
    """The report of an agent."""
    if urllib.parse.urlsplit(url).scheme not in ("http", "https"):
        raise errors.InputError(
            f"--agent: {url} is not an HTTP address",
            instead=f"write one such as {agent_address.DEFAULT}",
        )
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(url.rstrip("/") + reports.PATH, timeout=_TIMEOUT_S) as answer:
            return _REPORT.decode(answer.read(_MOST_BYTES))
    except urllib.error.HTTPError as error:
        raise _silent(url, f"the server answers {error.code}: {_said(error)}") from error
    except urllib.error.URLError as error:
        raise _silent(url, str(getattr(error.reason, "strerror", None) or error.reason)) from error
    except (OSError, http.client.HTTPException, ValueError) as error:
        raise _silent(url, f"the server there is not an agent of Partage ({error})") from error


def _said(error: urllib.error.HTTPError) -> str:
    with error:
        return error.read(1000).decode(errors="replace").strip() or error.reason


def _silent(url: str, why: str) -> CannotFetch:
    return CannotFetch(
        f"cannot read the report of an agent at {url}: {why}",
        instead="check that `partage agent` runs there, or name another address with --agent",
    )
