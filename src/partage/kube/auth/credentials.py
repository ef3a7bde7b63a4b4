"""Credentials: where the API server is, how it is recognized, and the login to use there.

They are looked for where kubectl and client-go look: a file that was named, ``$KUBECONFIG``, the
service account of a pod, ``~/.kube/config``. What cannot be used is an error that names the file,
the field and what to do; nothing is guessed.

Everything in a kubeconfig is read once, at `load`, but token files and exec plugins, which are
asked again as :mod:`partage.kube.auth.logins` says. Certificates in files are read once too: after
they were renewed a service has to be started again.
"""

from __future__ import annotations

import base64
import binascii
import os
import pathlib
import ssl
from collections.abc import Mapping

from partage.kube import errors
from partage.kube.auth import kubeconfig, logins, tls

SERVICE_ACCOUNT = pathlib.Path("/var/run/secrets/kubernetes.io/serviceaccount")


class Credentials:
    """A server and a login; `headers` may renew ``ssl``, so ask for headers first."""

    def __init__(
        self,
        server: str,
        *,
        namespace: str = "default",
        login: logins.Login | None = None,
        trust: tls.Trust | None = None,
    ) -> None:
        self.server = server.rstrip("/")
        self.namespace = namespace
        self._login = logins.Fixed() if login is None else login
        self._trust = tls.Trust() if trust is None else trust
        self._shown = self._login.pair
        self.ssl: ssl.SSLContext | None = None
        if self.server.startswith("https://"):
            self.ssl = tls.context(self._trust, self._shown)

    @property
    def server_name(self) -> str | None:
        """The name in the server's certificate, if it is not the host's."""
        return self._trust.server_name or None

    async def headers(self) -> dict[str, str]:
        """What to send with a request; may read a file or run a plugin."""
        headers = await self._login.headers()
        if self.ssl is not None and self._login.pair is not self._shown:
            # A new context and not a changed one: connections made with the old certificate
            # belong to the old context, and a new request will not use them.
            self.ssl = tls.context(self._trust, self._login.pair)
            self._shown = self._login.pair
        return headers

    def forget(self) -> None:
        """The server does not accept the login any more: read it anew."""
        self._login.forget()


def load(
    kubeconfig: str | None = None,
    context: str | None = None,
    environ: Mapping[str, str] = os.environ,
    *,
    service_account: pathlib.Path = SERVICE_ACCOUNT,
) -> Credentials:
    """The credentials to use here; the first source that is there counts."""
    if kubeconfig:
        return _from_files([pathlib.Path(kubeconfig)], context, environ)
    if environ.get("KUBECONFIG"):
        return _from_files(_listed(environ["KUBECONFIG"]), context, environ)
    if context is None and _in_cluster(environ, service_account):
        return _from_service_account(environ, service_account)
    home = pathlib.Path(environ.get("HOME", "/"), ".kube", "config")
    if home.exists():
        return _from_files([home], context, environ)
    raise errors.CredentialsError(
        "no Kubernetes credentials: no kubeconfig is named, KUBECONFIG is not set, this process "
        f"does not run in a pod with a service account, and there is no {home}",
        instead="name a kubeconfig file or set KUBECONFIG",
    )


def _listed(names: str) -> list[pathlib.Path]:
    paths = [pathlib.Path(name) for name in names.split(os.pathsep) if name]
    existing = [path for path in paths if path.exists()]
    if not existing:
        raise errors.CredentialsError(
            f"KUBECONFIG is {names!r}, and there is no such file",
            instead="correct it, or unset it to use the default",
        )
    return existing


def _in_cluster(environ: Mapping[str, str], folder: pathlib.Path) -> bool:
    files = (folder / "token", folder / "ca.crt")
    return bool(environ.get("KUBERNETES_SERVICE_HOST")) and all(file.exists() for file in files)


def _from_service_account(environ: Mapping[str, str], folder: pathlib.Path) -> Credentials:
    host = environ["KUBERNETES_SERVICE_HOST"]
    port = environ.get("KUBERNETES_SERVICE_PORT", "443")
    namespace = folder / "namespace"
    return Credentials(
        f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}",
        namespace=namespace.read_text().strip() if namespace.exists() else "default",
        login=logins.TokenFile(folder / "token"),
        trust=tls.Trust(
            _file(str(folder / "ca.crt"), "service account", "ca.crt"), origin=str(folder)
        ),
    )


def _from_files(
    files: list[pathlib.Path], context: str | None, environ: Mapping[str, str]
) -> Credentials:
    choice = kubeconfig.choose(files, context)
    trust = _trust(choice.cluster)
    return Credentials(
        _server(choice.cluster),
        namespace=choice.namespace or "default",
        login=_login(choice, trust, environ),
        trust=trust,
    )


def _server(cluster: kubeconfig.Entry[kubeconfig.Cluster]) -> str:
    server = cluster.value.server
    if not server.startswith(("https://", "http://")):
        raise errors.CredentialsError(
            f"{cluster.origin}: server {server!r} is not an address",
            instead="write it as https://host:port",
        )
    return server


def _trust(cluster: kubeconfig.Entry[kubeconfig.Cluster]) -> tls.Trust:
    entry = cluster.value
    authorities = _pem(
        entry.certificate_authority_data,
        entry.certificate_authority,
        cluster.origin,
        "certificate-authority",
    )
    if entry.insecure_skip_tls_verify and authorities is not None:
        raise errors.CredentialsError(
            f"{cluster.origin}: both certificate-authority and insecure-skip-tls-verify are set",
            instead="leave one of them out",
        )
    return tls.Trust(
        authorities, not entry.insecure_skip_tls_verify, entry.tls_server_name, cluster.origin
    )


def _login(choice: kubeconfig.Choice, trust: tls.Trust, environ: Mapping[str, str]) -> logins.Login:
    """Fixed credentials count before an exec plugin, and a token file before a token: client-go."""
    user, origin = choice.user.value, choice.user.origin
    pair = _pair(choice.user)
    if (user.username or user.password) and (user.token or user.token_file):
        raise errors.CredentialsError(
            f"{origin}: both a token and a user name are set", instead="leave one of them out"
        )
    if user.token_file:
        return logins.TokenFile(pathlib.Path(user.token_file), pair=pair)
    if user.token:
        return logins.Fixed(f"Bearer {user.token}", pair)
    if user.username or user.password:
        return logins.Fixed(logins.basic(user.username, user.password), pair)
    if user.plugin is None or pair is not None:
        return logins.Fixed(pair=pair)
    plugin = kubeconfig.Entry(user.plugin, origin)
    return logins.Exec(plugin, cluster=_cluster_info(choice.cluster.value, trust), environ=environ)


def _pair(user: kubeconfig.Entry[kubeconfig.User]) -> tls.Pair | None:
    entry, origin = user.value, user.origin
    certificate = _pem(
        entry.client_certificate_data, entry.client_certificate, origin, "client-certificate"
    )
    key = _pem(entry.client_key_data, entry.client_key, origin, "client-key")
    if certificate is None and key is None:
        return None
    if certificate is None or key is None:
        raise errors.CredentialsError(
            f"{origin}: only one of client-certificate and client-key is set",
            instead="give both",
        )
    return tls.Pair(certificate, key, origin)


def _cluster_info(cluster: kubeconfig.Cluster, trust: tls.Trust) -> dict[str, object]:
    """What a plugin learns about the cluster, if its kubeconfig wants it."""
    info: dict[str, object] = {"server": cluster.server}
    if trust.server_name:
        info["tls-server-name"] = trust.server_name
    if not trust.verify:
        info["insecure-skip-tls-verify"] = True
    if trust.authorities is not None:
        info["certificate-authority-data"] = base64.b64encode(trust.authorities).decode()
    for extension in cluster.extensions:
        if extension.name == kubeconfig.EXEC_EXTENSION:
            info["config"] = extension.extension
    return info


def _pem(data: str, path: str, origin: str, field: str) -> bytes | None:
    """Inline data count before a file, as in client-go."""
    if data:
        try:
            return base64.b64decode(data, validate=True)
        except binascii.Error:
            raise errors.CredentialsError(
                f"{origin}: {field}-data is not base64", instead=f"use {field} to name a PEM file"
            ) from None
    return _file(path, origin, field) if path else None


def _file(path: str, origin: str, field: str) -> bytes:
    try:
        return pathlib.Path(path).read_bytes()
    except OSError as error:
        raise errors.CredentialsError(
            f"{origin}: {field} {path} cannot be read: {error.strerror}",
            instead="check the path and its permissions",
        ) from error
