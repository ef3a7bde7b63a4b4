"""Logs of programs that run for long: plain lines on a terminal, JSON for log collectors."""

from __future__ import annotations

import json
import logging
import sys
import time

LEVELS = {"debug": 10, "info": 20, "warn": 30, "error": 40}


def to_stderr(level: str) -> None:
    """Write the log to stderr from now on."""
    handler = logging.StreamHandler()
    handler.setFormatter(_Plain() if sys.stderr.isatty() else _Json())
    logging.basicConfig(level=LEVELS[level], handlers=[handler], force=True)


class _Plain(logging.Formatter):
    """For a terminal."""

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)-7s %(message)s", "%H:%M:%S")


class _Json(logging.Formatter):
    """One object a line."""

    def format(self, record: logging.LogRecord) -> str:
        moment = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
        line = {
            "time": f"{moment}.{int(record.msecs):03d}Z",
            "level": record.levelname.lower(),
            "where": record.name,
            "text": record.getMessage(),
        }
        if record.exc_info:
            line["error"] = self.formatException(record.exc_info)
        return json.dumps(line, ensure_ascii=False)
