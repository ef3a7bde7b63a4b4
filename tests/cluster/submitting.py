"""Submitting: requests to a real API server with their headers, and answers with their warnings."""

from __future__ import annotations

import base64
import http.client
import json
import ssl
import urllib.parse
from typing import Any

import msgspec
import yaml

from cluster.control_plane.control_plane import ControlPlane

JSON = "application/json"
APPLY = "application/apply-patch+yaml"  # server-side apply; it takes text as it is printed
TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io"  # what `kubectl get` asks for


class Answer(msgspec.Struct, frozen=True):
    """What came back."""

    status: int
    body: dict[str, Any]
    warnings: list[str]  # kubectl prints them

    @property
    def made(self) -> dict[str, Any]:
        """The object; what was refused has none."""
        assert self.status < http.HTTPStatus.BAD_REQUEST, self.body
        return self.body

    @property
    def refusal(self) -> str:
        """Why it was refused."""
        assert self.status >= http.HTTPStatus.BAD_REQUEST, self.body
        return str(self.body["message"])


def submit(
    plane: ControlPlane,
    method: str,
    where: str,
    body: str = "",
    *,
    content_type: str = JSON,
    accept: str = JSON,
) -> Answer:
    """One request, as a client that speaks HTTP sends it."""
    read = yaml.safe_load(plane.kubeconfig.read_text())
    cluster, user = read["clusters"][0]["cluster"], read["users"][0]["user"]
    server = urllib.parse.urlsplit(cluster["server"])
    authority = base64.b64decode(cluster["certificate-authority-data"]).decode()
    trust = ssl.create_default_context(cadata=authority)
    connection = http.client.HTTPSConnection(
        str(server.hostname), server.port, context=trust, timeout=30
    )
    headers = {"Authorization": f"Bearer {user['token']}", "Accept": accept}
    if body:
        headers["Content-Type"] = content_type
    connection.request(method, where, body.encode(), headers)
    answer = connection.getresponse()
    text = answer.read()
    connection.close()
    warnings = [said for name, said in answer.getheaders() if name == "Warning"]
    return Answer(answer.status, json.loads(text), warnings)
