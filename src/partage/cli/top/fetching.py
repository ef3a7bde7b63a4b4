"""Asking an agent for its report, for commands on its node.

With the standard library alone, and directly: a proxy that the environment names for the web has no
business between a node and itself.
"""

from __future__ import annotations

import http.client
import urllib.error
import urllib.parse
import urllib.request

import msgspec

from partage.agent import reporting
from partage.cli.top import sampling
from partage.core import errors

_TIMEOUT_S = 3.0
_MOST_BYTES = 16 << 20  # of a report
_REPORT = msgspec.json.Decoder(reporting.Report)


class CannotFetch(errors.PartageError):
    """No agent told its report."""

    code = "cannot-fetch-report"


def fetch(url: str) -> reporting.Report:
    """What an agent tells."""
    if urllib.parse.urlsplit(url).scheme not in ("http", "https"):
        raise errors.InputError(
            f"--agent: {url} is no address of an agent",
            instead=f"write one such as {sampling.DEFAULT_AGENT}",
        )
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(url.rstrip("/") + reporting.PATH, timeout=_TIMEOUT_S) as answer:
            return _REPORT.decode(answer.read(_MOST_BYTES))
    except urllib.error.HTTPError as error:
        raise _silent(url, f"it answers {error.code}: {_said(error)}") from error
    except urllib.error.URLError as error:
        raise _silent(url, str(getattr(error.reason, "strerror", None) or error.reason)) from error
    except (OSError, http.client.HTTPException, ValueError) as error:
        raise _silent(url, f"what answers is no agent of Partage ({error})") from error


def _said(error: urllib.error.HTTPError) -> str:
    with error:
        return error.read(1000).decode(errors="replace").strip() or error.reason


def _silent(url: str, why: str) -> CannotFetch:
    return CannotFetch(
        f"no agent tells its report at {url}: {why}",
        instead="see whether `partage agent` runs there, or name another address with --agent",
    )
