"""The address of a node's agent, unless the user names another one."""

from __future__ import annotations

from partage.agent import reports

DEFAULT = f"http://{reports.DEFAULT_ADDRESS}:{reports.DEFAULT_PORT}"
