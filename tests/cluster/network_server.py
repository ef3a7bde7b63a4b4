"""A server for pods on a network: it says who it is, and answers as a webhook and as an extender.

Run as a script: ``network_server.py PORT [FOLDER]``, with TLS if FOLDER has a certificate and its
key. It runs in a pod, on the machine's Python, so it needs nothing but the standard library.
"""

from __future__ import annotations

import http.server
import json
import socket
import ssl
import sys
from typing import Any

REFUSED = "refused by a pod"


class Answers(http.server.BaseHTTPRequestHandler):
    """What it answers."""

    def do_GET(self) -> None:
        """Who it is: pods are named like their hosts."""
        self._send(socket.gethostname().encode())

    def do_POST(self) -> None:
        """A webhook that refuses everything, and an extender that takes the last of the nodes."""
        question = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        answer = _filtered(question) if self.path == "/filter" else _refusal(question)
        self._send(json.dumps(answer).encode(), "application/json")

    def _send(self, body: bytes, kind: str = "text/plain") -> None:
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


def _refusal(review: dict[str, Any]) -> dict[str, Any]:
    answer = {
        "uid": review["request"]["uid"],
        "allowed": False,
        "status": {"message": REFUSED},
    }
    return {"apiVersion": review["apiVersion"], "kind": review["kind"], "response": answer}


def _filtered(arguments: dict[str, Any]) -> dict[str, Any]:
    return {"NodeNames": sorted(arguments["NodeNames"])[-1:]}


def main(port: int, folder: str = "") -> None:
    """Serve for ever."""
    server = http.server.ThreadingHTTPServer(("", port), Answers)
    if folder:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(f"{folder}/tls.crt", f"{folder}/tls.key")
        server.socket = context.wrap_socket(server.socket, server_side=True)
    server.serve_forever()


if __name__ == "__main__":
    main(int(sys.argv[1]), *sys.argv[2:])
