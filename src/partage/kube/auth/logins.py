"""Logins: how a request shows whose it is.

Three kinds. What is fixed in a kubeconfig (token, password, client certificate, nothing) never
changes. A token file is read again every minute, because the kubelet renews projected tokens in
place. An exec plugin is a program that prints a token or a certificate which holds for a while;
it is run when there is none, and never by two requests at once.

After a 401 the server does not accept the login any more: `forget` makes the next request read or
run anew. A plugin never gets the terminal, since most of Partage has none.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import datetime as dt
import pathlib
import time
from collections.abc import Callable, Mapping
from typing import Annotated, Protocol

import msgspec

from partage.kube import errors, wire
from partage.kube.auth import kubeconfig, tls

REREAD_S = 60.0  # the kubelet renews a token when 20 % of its life is left: minutes at the least
_PLUGIN_TIMEOUT_S = 60.0
_LONGEST_STDERR = 500  # characters of a plugin's complaint in a message
_EXEC_VERSIONS = (
    "client.authentication.k8s.io/v1",
    "client.authentication.k8s.io/v1beta1",
)


class Login(Protocol):
    """A login, as long as the server accepts it."""

    @property
    def pair(self) -> tls.Pair | None:
        """The client certificate, as of the last `headers`."""

    async def headers(self) -> dict[str, str]:
        """What to send along with a request."""

    def forget(self) -> None:
        """Read anew: the server does not accept it any more."""


class Fixed:
    """What stands in a kubeconfig and does not change; by default nothing at all."""

    def __init__(self, header: str = "", pair: tls.Pair | None = None) -> None:
        self.pair = pair
        self._headers = {"Authorization": header} if header else {}

    async def headers(self) -> dict[str, str]:
        return dict(self._headers)

    def forget(self) -> None:
        """There is nothing to read anew."""


class TokenFile:
    """A token in a file that others renew."""

    def __init__(
        self,
        path: pathlib.Path,
        *,
        pair: tls.Pair | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.pair = pair
        self._path = path
        self._clock = clock
        self._token = ""
        self._read_at = -REREAD_S

    async def headers(self) -> dict[str, str]:
        if not self._token or self._clock() - self._read_at >= REREAD_S:
            self._read()
        return {"Authorization": f"Bearer {self._token}"}

    def forget(self) -> None:
        self._token = ""

    def _read(self) -> None:
        token, problem = _token_in(self._path)
        if token:
            self._token, self._read_at = token, self._clock()
        elif not self._token:  # else it may still hold, and the file may come back
            raise errors.CredentialsError(
                f"token file {self._path} cannot be used: {problem}",
                instead="check the path, its permissions and its content",
            )


class Exec:
    """What an exec plugin printed, until it expires."""

    def __init__(
        self,
        plugin: kubeconfig.Entry[kubeconfig.Plugin],
        *,
        cluster: Mapping[str, object],
        environ: Mapping[str, str],
        now: Callable[[], dt.datetime] = lambda: dt.datetime.now(dt.UTC),
    ) -> None:
        self.pair: tls.Pair | None = None
        self._plugin = plugin.value
        self._origin = plugin.origin
        self._environ = _environment(self._plugin, cluster, environ)
        self._now = now
        self._header = ""
        self._expires: dt.datetime | None = None
        self._has_credential = False
        self._running = asyncio.Lock()
        self._check()

    async def headers(self) -> dict[str, str]:
        async with self._running:
            if not self._fresh():
                self._take(await self._run())
            return {"Authorization": self._header} if self._header else {}

    def forget(self) -> None:
        self._has_credential = False

    def _fresh(self) -> bool:
        return self._has_credential and (self._expires is None or self._now() < self._expires)

    def _check(self) -> None:
        if self._plugin.api_version not in _EXEC_VERSIONS:
            raise self._failed(
                f"apiVersion {self._plugin.api_version!r} is not supported",
                instead=f"configure the plugin for {' or '.join(_EXEC_VERSIONS)}",
            )
        if self._plugin.interactive_mode == "Always":
            raise self._failed("needs a terminal", instead="set interactiveMode to IfAvailable")

    async def _run(self) -> _Credential:
        process = await self._start()
        try:
            async with asyncio.timeout(_PLUGIN_TIMEOUT_S):
                out, complaint = await process.communicate()
        except TimeoutError as error:
            raise self._failed(f"did not finish in {_PLUGIN_TIMEOUT_S:g} s") from error
        finally:
            if process.returncode is None:  # it hangs, or nobody wants its answer any more
                with contextlib.suppress(ProcessLookupError):
                    process.kill()
                await process.wait()
        if process.returncode:
            text = complaint.decode(errors="replace").strip()[-_LONGEST_STDERR:]
            raise self._failed(f"ended with status {process.returncode}: {text}")
        return self._printed(out)

    async def _start(self) -> asyncio.subprocess.Process:
        try:
            return await asyncio.create_subprocess_exec(
                self._plugin.command,
                *self._plugin.args,
                env=self._environ,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
            )
        except OSError as error:
            raise self._failed(
                f"cannot be started: {error.strerror}",
                instead=self._plugin.install_hint or "install it, or correct the command",
            ) from error

    def _printed(self, out: bytes) -> _Credential:
        try:
            credential = msgspec.json.decode(out, type=_Credential)
        except wire.UNREADABLE:
            raise self._failed("did not print an ExecCredential") from None  # may quote a token
        if credential.api_version != self._plugin.api_version:
            raise self._failed(f"printed apiVersion {credential.api_version!r}")
        status = credential.status
        if not status.token and not status.client_certificate_data:
            raise self._failed("printed neither a token nor a client certificate")
        if bool(status.client_certificate_data) != bool(status.client_key_data):
            raise self._failed("printed a client certificate without key, or a key alone")
        return credential

    def _take(self, credential: _Credential) -> None:
        status = credential.status
        self._header = f"Bearer {status.token}" if status.token else ""
        certificate, key = status.client_certificate_data, status.client_key_data
        pair = tls.Pair(certificate.encode(), key.encode(), self._origin) if certificate else None
        if pair != self.pair:  # the same pair keeps its connections
            self.pair = pair
        self._expires = status.expiration_timestamp
        self._has_credential = True

    def _failed(self, what: str, *, instead: str = "") -> errors.CredentialsError:
        text = f"{self._origin}: exec plugin {self._plugin.command!r} {what}"
        return errors.CredentialsError(text, instead=instead or "run it by hand to see why")


class _Granted(msgspec.Struct, frozen=True, rename="camel"):
    token: str = ""
    client_certificate_data: str = ""  # PEM, in spite of its name
    client_key_data: str = ""
    expiration_timestamp: Annotated[dt.datetime, msgspec.Meta(tz=True)] | None = None


class _Credential(msgspec.Struct, frozen=True, rename="camel"):
    api_version: str = ""
    status: _Granted = _Granted()


def basic(username: str, password: str) -> str:
    """The header of a user name and password."""
    return "Basic " + base64.b64encode(f"{username}:{password}".encode()).decode()


def _token_in(path: pathlib.Path) -> tuple[str, str]:
    """The token, or why there is none."""
    try:
        token = path.read_bytes().strip()
    except OSError as error:
        return "", str(error.strerror)
    return (token.decode(), "it is empty") if token.isascii() else ("", "it is not plain text")


def _environment(
    plugin: kubeconfig.Plugin, cluster: Mapping[str, object], environ: Mapping[str, str]
) -> dict[str, str]:
    spec: dict[str, object] = {"interactive": False}
    if plugin.provide_cluster_info:
        spec["cluster"] = cluster
    info = {"apiVersion": plugin.api_version, "kind": "ExecCredential", "spec": spec}
    own = {variable.name: variable.value for variable in plugin.env}
    return {**environ, **own, "KUBERNETES_EXEC_INFO": msgspec.json.encode(info).decode()}
