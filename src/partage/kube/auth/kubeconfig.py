"""kubeconfig files: read, merged as kubectl merges them, and one context chosen.

Of several files the first to name a cluster, a user or a context has it whole, and the first to
set the current context sets it. Relative paths are relative to the file they stand in, so they are
made absolute before merging.

A field that changes the login or the way to the server, and that Partage does not support, is
refused: to leave it out silently would be to act as another user. All other unknown fields are
ignored.

Nothing is opened here but the kubeconfig files themselves; certificates and tokens are read by
:mod:`partage.kube.auth.credentials`.
"""

from __future__ import annotations

import pathlib
from collections.abc import Mapping, Sequence
from typing import Generic, TypeVar

import msgspec
import yaml

from partage.kube import errors

T = TypeVar("T")

EXEC_EXTENSION = "client.authentication.k8s.io/exec"
# The safe loader, in C where PyYAML has it.
_Loader: type[yaml.SafeLoader | yaml.CSafeLoader] = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class Extension(msgspec.Struct, frozen=True):
    """What others keep in a kubeconfig; exec plugins get theirs handed on."""

    name: str = ""
    extension: object = None


class Cluster(msgspec.Struct, frozen=True, rename="kebab"):
    """Where the server is and how it is recognized."""

    server: str = ""
    certificate_authority: str = ""
    certificate_authority_data: str = ""
    insecure_skip_tls_verify: bool = False
    tls_server_name: str = ""
    proxy_url: str = ""
    extensions: tuple[Extension, ...] = ()


class Variable(msgspec.Struct, frozen=True):
    """One variable in the environment of an exec plugin."""

    name: str
    value: str = ""


class Plugin(msgspec.Struct, frozen=True, rename="camel"):
    """A program that hands out credentials."""

    api_version: str = ""
    command: str = ""
    args: tuple[str, ...] = ()
    env: tuple[Variable, ...] = ()
    install_hint: str = ""
    interactive_mode: str = ""
    provide_cluster_info: bool = False


class User(msgspec.Struct, frozen=True, rename="kebab"):
    """How to log in."""

    client_certificate: str = ""
    client_certificate_data: str = ""
    client_key: str = ""
    client_key_data: str = ""
    token: str = ""
    token_file: str = msgspec.field(default="", name="tokenFile")
    username: str = ""
    password: str = ""
    plugin: Plugin | None = msgspec.field(default=None, name="exec")
    auth_provider: object = None
    impersonated: str = msgspec.field(default="", name="as")

    def __repr__(self) -> str:
        """Without its secrets."""
        return "User(...)"


class Context(msgspec.Struct, frozen=True):
    """A cluster, a user and a namespace by name."""

    cluster: str = ""
    user: str = ""
    namespace: str = ""


class Entry(msgspec.Struct, Generic[T], frozen=True):
    """A cluster, user or context, and the words by which a message names it."""

    value: T
    origin: str


class Choice(msgspec.Struct, frozen=True):
    """What one context stands for."""

    cluster: Entry[Cluster]
    user: Entry[User]
    namespace: str


def choose(files: Sequence[pathlib.Path], context: str | None) -> Choice:
    """What a context of these files stands for; None is the current one."""
    merged = _Merged()
    for file in files:
        merged.add(file, _read(file))
    chosen = _chosen_context(merged, files, context)
    cluster = _named(merged.clusters, chosen.value.cluster, "cluster", chosen.origin)
    user = _user(merged, chosen)
    _refuse_unknown(cluster, user)
    return Choice(cluster, user, chosen.value.namespace)


class _NamedCluster(msgspec.Struct, frozen=True):
    name: str
    cluster: Cluster = Cluster()


class _NamedUser(msgspec.Struct, frozen=True):
    name: str
    user: User = User()


class _NamedContext(msgspec.Struct, frozen=True):
    name: str
    context: Context = Context()


class _File(msgspec.Struct, frozen=True, rename="kebab"):
    clusters: tuple[_NamedCluster, ...] = ()
    users: tuple[_NamedUser, ...] = ()
    contexts: tuple[_NamedContext, ...] = ()
    current_context: str = ""


class _Merged:
    def __init__(self) -> None:
        self.clusters: dict[str, Entry[Cluster]] = {}
        self.users: dict[str, Entry[User]] = {}
        self.contexts: dict[str, Entry[Context]] = {}
        self.current = ""

    def add(self, file: pathlib.Path, content: _File) -> None:
        folder = file.absolute().parent
        for c in content.clusters:
            entry = Entry(_cluster_in(folder, c.cluster), f"cluster {c.name!r} in {file}")
            self.clusters.setdefault(c.name, entry)
        for u in content.users:
            self.users.setdefault(
                u.name, Entry(_user_in(folder, u.user), f"user {u.name!r} in {file}")
            )
        for named in content.contexts:
            context = Entry(named.context, f"context {named.name!r} in {file}")
            self.contexts.setdefault(named.name, context)
        self.current = self.current or content.current_context


def _read(file: pathlib.Path) -> _File:
    try:
        written = yaml.load(file.read_bytes(), Loader=_Loader)
        return msgspec.convert(_without_nulls(written) or {}, _File)
    except OSError as error:
        raise errors.CredentialsError(
            f"kubeconfig {file} cannot be read: {error.strerror}",
            instead="check the path and its permissions",
        ) from error
    except yaml.YAMLError as error:
        raise _unreadable(file, _place(error)) from None  # its text may quote a secret
    except msgspec.ValidationError as error:
        raise _unreadable(file, str(error)) from None


def _unreadable(file: pathlib.Path, why: str) -> errors.CredentialsError:
    return errors.CredentialsError(
        f"kubeconfig {file} is not a kubeconfig: {why}",
        instead="`kubectl config view` shows how kubectl reads it",
    )


def _place(error: yaml.YAMLError) -> str:
    mark = getattr(error, "problem_mark", None)
    return f"line {mark.line + 1} is not YAML" if mark is not None else "it is not YAML"


def _without_nulls(value: object) -> object:
    # kubectl writes null for what is empty (`env: null`, `users: null`).
    if isinstance(value, Mapping):
        return {key: _without_nulls(held) for key, held in value.items() if held is not None}
    if isinstance(value, list):
        return [_without_nulls(held) for held in value]
    return value


def _cluster_in(folder: pathlib.Path, cluster: Cluster) -> Cluster:
    return msgspec.structs.replace(
        cluster, certificate_authority=_path_in(folder, cluster.certificate_authority)
    )


def _user_in(folder: pathlib.Path, user: User) -> User:
    return msgspec.structs.replace(
        user,
        client_certificate=_path_in(folder, user.client_certificate),
        client_key=_path_in(folder, user.client_key),
        token_file=_path_in(folder, user.token_file),
        plugin=None if user.plugin is None else _plugin_in(folder, user.plugin),
    )


def _plugin_in(folder: pathlib.Path, plugin: Plugin) -> Plugin:
    if "/" not in plugin.command:
        return plugin  # to be found on the PATH
    return msgspec.structs.replace(plugin, command=_path_in(folder, plugin.command))


def _path_in(folder: pathlib.Path, path: str) -> str:
    return str(folder / path) if path else ""


def _chosen_context(
    merged: _Merged, files: Sequence[pathlib.Path], context: str | None
) -> Entry[Context]:
    where = f"kubeconfig {', '.join(map(str, files))}"
    name = context or merged.current
    if not name:
        raise errors.CredentialsError(
            f"{where}: no current-context", instead=_choices(merged.contexts, "context")
        )
    return _named(merged.contexts, name, "context", where)


def _user(merged: _Merged, chosen: Entry[Context]) -> Entry[User]:
    if not chosen.value.user:
        return Entry(User(), f"{chosen.origin} without a user")
    return _named(merged.users, chosen.value.user, "user", chosen.origin)


def _named(entries: Mapping[str, Entry[T]], name: str, kind: str, where: str) -> Entry[T]:
    entry = entries.get(name)
    if entry is None:
        raise errors.CredentialsError(
            f"{where}: there is no {kind} {name!r}", instead=_choices(entries, kind)
        )
    return entry


def _choices(entries: Mapping[str, object], kind: str) -> str:
    names = ", ".join(map(repr, sorted(entries)))
    return f"choose one of {names}" if names else f"add a {kind} to it"


def _refuse_unknown(cluster: Entry[Cluster], user: Entry[User]) -> None:
    refused = (
        (cluster.value.proxy_url, cluster.origin, "proxy-url", "reach the server without a proxy"),
        (user.value.auth_provider, user.origin, "auth-provider", "use an exec plugin"),
        (user.value.impersonated, user.origin, "as", "name a user that has the rights itself"),
    )
    for written, origin, field, instead in refused:
        if written:
            raise errors.CredentialsError(f"{origin}: {field} is not supported", instead=instead)
