"""Kubeconfigs, and the certificates that they name."""

from __future__ import annotations

import base64
import pathlib
import subprocess
from collections.abc import Mapping

import yaml


def kubeconfig(
    file: pathlib.Path,
    *,
    name: str = "lab",
    cluster: Mapping[str, object] | None = None,
    user: Mapping[str, object] | None = None,
    namespace: str = "",
    current: str | None = None,
) -> pathlib.Path:
    """A kubeconfig with one cluster, user and context, all of one name."""
    context = {"cluster": name, "user": name, **({"namespace": namespace} if namespace else {})}
    cluster = {"server": "https://lab.example:6443"} if cluster is None else cluster
    content = {
        "clusters": [{"name": name, "cluster": dict(cluster)}],
        "users": [{"name": name, "user": dict(user or {})}],
        "contexts": [{"name": name, "context": context}],
        "current-context": name if current is None else current,
    }
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(yaml.safe_dump(content))
    return file


def base64_of(file: pathlib.Path) -> str:
    """A file as it stands in a kubeconfig's ``-data`` field."""
    return base64.b64encode(file.read_bytes()).decode()


class Certificates:
    """An authority, a server's certificate for the name ``kube.test`` and 127.0.0.1, a client's."""

    def __init__(self, folder: pathlib.Path) -> None:
        self.folder = folder
        self.authority = folder / "ca.crt"
        folder.mkdir(parents=True, exist_ok=True)
        _openssl(folder, "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2"
                 " -subj /CN=test-ca -keyout ca.key -out ca.crt")  # fmt: skip
        self.issue("server", names="DNS:kube.test,IP:127.0.0.1")
        self.issue("client")

    def issue(self, name: str, *, names: str = "DNS:nobody.test") -> None:
        """A key and a certificate signed by the authority."""
        (self.folder / "names").write_text(f"subjectAltName={names}\n")
        _openssl(self.folder, "req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes"
                 f" -subj /CN={name} -keyout {name}.key -out {name}.csr")  # fmt: skip
        _openssl(self.folder, f"x509 -req -in {name}.csr -CA ca.crt -CAkey ca.key -days 2"
                 f" -extfile names -out {name}.crt")  # fmt: skip


def _openssl(folder: pathlib.Path, arguments: str) -> None:
    command = ["openssl", *arguments.split()]
    subprocess.run(command, cwd=folder, check=True, capture_output=True)
