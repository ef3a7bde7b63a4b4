"""Credentials are found where kubectl finds them, and what cannot be used says how to mend it."""

from __future__ import annotations

import pathlib

import pytest

from partage.kube import errors
from partage.kube.auth import credentials
from tests.kube import kubeconfigs

LAB = "https://lab.example:6443"


@pytest.fixture
def pod(tmp_path: pathlib.Path, certificates: kubeconfigs.Certificates) -> pathlib.Path:
    """The folder of a service account."""
    folder = tmp_path / "serviceaccount"
    folder.mkdir()
    (folder / "token").write_text("pod-token\n")
    (folder / "namespace").write_text("gpu-system")
    (folder / "ca.crt").write_bytes(certificates.authority.read_bytes())
    return folder


def names(tmp_path: pathlib.Path, name: str) -> pathlib.Path:
    """A kubeconfig whose server has this name."""
    server = {"server": f"https://{name}.example"}
    return kubeconfigs.kubeconfig(tmp_path / name / "config", name=name, cluster=server)


def load(
    kubeconfig: str | None = None,
    context: str | None = None,
    *,
    folder: pathlib.Path = pathlib.Path("/none"),
    **environ: str,
) -> str:
    """The server that is found."""
    return credentials.load(kubeconfig, context, environ, service_account=folder).server


def test_the_first_source_counts(tmp_path: pathlib.Path, pod: pathlib.Path) -> None:
    """A file that was named, then KUBECONFIG, then the service account, then the home folder."""
    named, listed, home = (names(tmp_path, name) for name in ("named", "listed", "home"))
    home.parent.rename(tmp_path / ".kube")
    everything = {
        "KUBECONFIG": str(listed),
        "KUBERNETES_SERVICE_HOST": "10.0.0.1",
        "HOME": str(tmp_path),
    }

    assert load(str(named), folder=pod, **everything) == "https://named.example"
    assert load(folder=pod, **everything) == "https://listed.example"
    del everything["KUBECONFIG"]
    assert load(folder=pod, **everything) == "https://10.0.0.1:443"
    assert load(None, "home", folder=pod, **everything) == "https://home.example"
    del everything["KUBERNETES_SERVICE_HOST"]
    assert load(folder=pod, **everything) == "https://home.example"


def test_nothing_is_found(tmp_path: pathlib.Path) -> None:
    """The error names all places and the ways out."""
    with pytest.raises(errors.CredentialsError) as raised:
        load(HOME=str(tmp_path))

    assert f"there is no {tmp_path}/.kube/config" in str(raised.value)
    assert "name a kubeconfig file or set KUBECONFIG" in str(raised.value)


async def test_a_service_account(pod: pathlib.Path) -> None:
    """Server, namespace and token are the pod's, and the server is known by the cluster's CA."""
    environ = {"KUBERNETES_SERVICE_HOST": "10.0.0.1", "KUBERNETES_SERVICE_PORT": "6443"}
    login = credentials.load(environ=environ, service_account=pod)

    assert (login.server, login.namespace) == ("https://10.0.0.1:6443", "gpu-system")
    assert await login.headers() == {"Authorization": "Bearer pod-token"}
    assert login.ssl is not None
    assert [ca["subject"] for ca in login.ssl.get_ca_certs()] == [((("commonName", "test-ca"),),)]


def test_a_service_account_in_an_ipv6_cluster(pod: pathlib.Path) -> None:
    """The host is written in brackets."""
    assert load(folder=pod, KUBERNETES_SERVICE_HOST="fd00::1") == "https://[fd00::1]:443"


def test_a_pod_without_service_account(tmp_path: pathlib.Path) -> None:
    """The environment alone is not enough."""
    kubeconfigs.kubeconfig(tmp_path / ".kube" / "config")
    environ = {"KUBERNETES_SERVICE_HOST": "10.0.0.1", "HOME": str(tmp_path)}

    assert load(folder=tmp_path, **environ) == LAB


class TestContexts:
    """A context stands for a cluster, a user and a namespace."""

    def test_the_current_one_is_taken(self, tmp_path: pathlib.Path) -> None:
        """With its namespace."""
        file = kubeconfigs.kubeconfig(tmp_path / "config", namespace="vision")
        assert credentials.load(str(file)).namespace == "vision"

    def test_without_namespace_it_is_default(self, tmp_path: pathlib.Path) -> None:
        """As for kubectl."""
        assert (
            credentials.load(str(kubeconfigs.kubeconfig(tmp_path / "config"))).namespace
            == "default"
        )

    def test_another_can_be_chosen(self, tmp_path: pathlib.Path) -> None:
        """By name, from all files."""
        first, second = names(tmp_path, "one"), names(tmp_path, "two")
        assert load(None, "two", KUBECONFIG=f"{first}:{second}") == "https://two.example"

    def test_one_that_is_not_there(self, tmp_path: pathlib.Path) -> None:
        """The error names those that are."""
        file = kubeconfigs.kubeconfig(tmp_path / "config")
        with pytest.raises(errors.CredentialsError, match=r"no context 'prod'; choose one of 'lab"):
            load(str(file), "prod")

    def test_none_is_current(self, tmp_path: pathlib.Path) -> None:
        """Nothing is guessed, even if there is only one."""
        file = kubeconfigs.kubeconfig(tmp_path / "config", current="")
        with pytest.raises(errors.CredentialsError, match=r"no current-context; choose one of"):
            load(str(file))

    def test_it_names_what_is_not_there(self, tmp_path: pathlib.Path) -> None:
        """A context without its cluster is told."""
        file = tmp_path / "config"
        file.write_text("contexts: [{name: x, context: {cluster: y}}]\ncurrent-context: x\n")
        with pytest.raises(
            errors.CredentialsError, match=r"context 'x' in .*: there is no cluster 'y"
        ):
            load(str(file))

    async def test_a_user_may_be_missing(self, tmp_path: pathlib.Path) -> None:
        """A server may let anybody in."""
        file = tmp_path / "config"
        file.write_text(
            "clusters: [{name: y, cluster: {server: 'http://127.0.0.1:8080'}}]\n"
            "contexts: [{name: x, context: {cluster: y}}]\ncurrent-context: x\n"
        )
        login = credentials.load(str(file))
        assert login.ssl is None
        assert await login.headers() == {}


class TestSeveralFiles:
    """Files of KUBECONFIG are merged as kubectl merges them."""

    async def test_the_first_to_name_something_has_it_whole(self, tmp_path: pathlib.Path) -> None:
        """What a later file has under the same name is not mixed in."""
        first = kubeconfigs.kubeconfig(tmp_path / "1", current="")
        second = kubeconfigs.kubeconfig(
            tmp_path / "2", cluster={"server": "https://other"}, user={"token": "t"}
        )
        login = credentials.load(environ={"KUBECONFIG": f"{first}:{second}"})
        assert login.server == LAB
        assert await login.headers() == {}

    def test_the_first_current_context_counts(self, tmp_path: pathlib.Path) -> None:
        """Whichever file it stands in."""
        first, second = names(tmp_path, "one"), names(tmp_path, "two")
        assert load(KUBECONFIG=f"{second}:{first}") == "https://two.example"

    def test_files_that_are_not_there_are_skipped(self, tmp_path: pathlib.Path) -> None:
        """And so are empty names."""
        file = kubeconfigs.kubeconfig(tmp_path / "config")
        assert load(KUBECONFIG=f"/not/there::{file}:") == LAB

    def test_none_is_there(self) -> None:
        """That is an error, and not a reason to look elsewhere."""
        with pytest.raises(errors.CredentialsError, match="no such file"):
            load(KUBECONFIG="/not/there:/nor/there")

    async def test_paths_are_relative_to_their_file(self, tmp_path: pathlib.Path) -> None:
        """To each its own folder."""
        kubeconfigs.kubeconfig(tmp_path / "a" / "config", name="a", current="b")
        kubeconfigs.kubeconfig(
            tmp_path / "b" / "config", name="b", user={"tokenFile": "keys/token"}
        )
        (tmp_path / "b" / "keys").mkdir()
        (tmp_path / "b" / "keys" / "token").write_text("from-b")
        files = f"{tmp_path}/a/config:{tmp_path}/b/config"
        login = credentials.load(environ={"KUBECONFIG": files})
        assert await login.headers() == {"Authorization": "Bearer from-b"}


NULLS = """
clusters: [{name: lab, cluster: {server: 'https://lab.example:6443', certificate-authority: null}}]
users: [{name: lab, user: {token: t, exec: null}}]
contexts: [{name: lab, context: {cluster: lab, user: lab, namespace: null}}]
current-context: lab
preferences: {}
extensions: null
"""


def test_nulls_and_unknown_fields(tmp_path: pathlib.Path) -> None:
    """kubectl writes null for what is empty, and other tools leave their own fields."""
    (tmp_path / "config").write_text(NULLS)
    assert load(str(tmp_path / "config")) == LAB


UNUSABLE: dict[str, tuple[dict[str, object], dict[str, object], str]] = {
    "proxy": (
        {"server": LAB, "proxy-url": "socks5://p"},
        {},
        "cluster 'lab' in .*: proxy-url is not supported",
    ),
    "impersonation": ({"server": LAB}, {"as": "admin"}, "user 'lab' in .*: as is not supported"),
    "auth provider": ({"server": LAB}, {"auth-provider": {"name": "oidc"}}, "use an exec plugin"),
    "no server": ({}, {}, "server '' is not an address; write it as https"),
    "server without scheme": ({"server": "lab:6443"}, {}, "server 'lab:6443' is not an address"),
    "CA is not there": (
        {"server": LAB, "certificate-authority": "ca.crt"},
        {},
        "certificate-authority .*/ca.crt cannot be read: No such file",
    ),
    "CA is no base64": (
        {"server": LAB, "certificate-authority-data": "%%%"},
        {},
        "certificate-authority-data is not base64",
    ),
    "CA is no certificate": (
        {"server": LAB, "certificate-authority-data": "aGVsbG8="},
        {},
        "certificate-authority contains no certificate",
    ),
    "CA and no check": (
        {"server": LAB, "certificate-authority-data": "aGVsbG8=", "insecure-skip-tls-verify": True},
        {},
        "both certificate-authority and insecure-skip-tls-verify",
    ),
    "key alone": ({"server": LAB}, {"client-key-data": "aGVsbG8="}, "only one of client-cert"),
    "no certificate": (
        {"server": LAB},
        {"client-key-data": "aGVsbG8=", "client-certificate-data": "aGVsbG8="},
        "client-certificate and client-key cannot be used together",
    ),
    "token and password": (
        {"server": LAB},
        {"token": "s3cret", "username": "me", "password": "s3cret"},
        "both a token and a user name",
    ),
}


@pytest.mark.parametrize("case", UNUSABLE)
def test_what_cannot_be_used(tmp_path: pathlib.Path, case: str) -> None:
    """The error names where it stands, the field, and what to do; never the secret."""
    cluster, user, message = UNUSABLE[case]
    file = kubeconfigs.kubeconfig(tmp_path / "config", cluster=cluster, user=user)

    with pytest.raises(errors.CredentialsError, match=message) as raised:
        load(str(file))

    assert str(file) in str(raised.value)
    assert raised.value.instead
    assert "s3cret" not in str(raised.value)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("users: [{name: u, user: {token: s3cret: x}}]", "line 1 is not YAML"),
        ("users: [{name: u, user: {token: [s3cret]}}]", r"Expected `str`, got `array` - at `\$.us"),
        ("- s3cret", "Expected `object`, got `array`"),
        ("\x00s3cret", "it is not YAML"),
    ],
)
def test_what_is_no_kubeconfig(tmp_path: pathlib.Path, content: str, message: str) -> None:
    """The error says where it stops making sense, without quoting it."""
    (tmp_path / "config").write_text(content)

    with pytest.raises(errors.CredentialsError, match=message) as raised:
        load(str(tmp_path / "config"))

    assert "s3cret" not in str(raised.value)
    assert raised.value.__cause__ is None  # what it came from may quote it
    assert raised.value.__suppress_context__


def test_a_file_that_is_not_there() -> None:
    """A file that was named must exist."""
    with pytest.raises(
        errors.CredentialsError, match="kubeconfig /not/there cannot be read: No such"
    ):
        load("/not/there")
