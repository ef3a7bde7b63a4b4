"""Access files: the key, the tokens and the kubeconfigs of a control plane on loopback.

The API server makes its own certificate and keeps it in its folder; a kubeconfig trusts exactly
that one. The key that signs service accounts' tokens is made here, without any tool: an elliptic
curve's private key is a random number, and Go computes the rest of it.
"""

from __future__ import annotations

import base64
import csv
import secrets
import textwrap
from collections.abc import Iterable
from pathlib import Path

import yaml

ADMIN = "admin"
PROXY = "system:kube-proxy"  # whose rights every cluster has from its beginning
MOST_NODES = 32  # with a kubelet

# ASN.1 of an EC private key on the curve P-256 (RFC 5915), around its 32 bytes. A number above the
# curve's order would be refused; the odds are one in four thousand million.
_BEFORE = bytes.fromhex("30310201010420")
_AFTER = bytes.fromhex("a00a06082a8648ce3d030107")


def write_signing_key(path: Path) -> None:
    """A new key for service accounts' tokens."""
    encoded = base64.b64encode(_BEFORE + secrets.token_bytes(32) + _AFTER).decode()
    lines = "\n".join(textwrap.wrap(encoded, 64))
    path.write_text(f"-----BEGIN EC PRIVATE KEY-----\n{lines}\n-----END EC PRIVATE KEY-----\n")


def write_tokens(path: Path, nodes: Iterable[str]) -> None:
    """The API server's file of tokens: an administrator's, who may do anything, and the nodes'.

    The server reads it once, when it starts, so it has a token for every node that may come.
    """
    users = {ADMIN: "system:masters", PROXY: "system:kube-proxies"}
    users |= {kubelet(node): "system:nodes" for node in nodes}
    lines = [f"{secrets.token_urlsafe(24)},{user},{user},{group}" for user, group in users.items()]
    path.write_text("\n".join([*lines, ""]))


def token(path: Path, user: str) -> str:
    """The token of a user."""
    with path.open() as lines:
        return next(row[0] for row in csv.reader(lines) if row[1] == user)


def kubelet(node: str) -> str:
    """The user that a node's kubelet is."""
    return f"system:node:{node}"


def write_kubeconfig(
    path: Path, *, server: str, token: str, authority_pem: str, user: str = ADMIN
) -> None:
    """A kubeconfig that needs no other file."""
    authority = base64.b64encode(authority_pem.encode()).decode()
    cluster = {"server": server, "certificate-authority-data": authority}
    written = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "partage", "cluster": cluster}],
        "users": [{"name": user, "user": {"token": token}}],
        "contexts": [{"name": "partage", "context": {"cluster": "partage", "user": user}}],
        "current-context": "partage",
    }
    path.touch(mode=0o600)
    path.write_text(yaml.safe_dump(written, sort_keys=False))
