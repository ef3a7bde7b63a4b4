"""Logins: what is fixed, what others renew in a file, and what a plugin hands out for a while."""

from __future__ import annotations

import asyncio
import datetime as dt
import os
import pathlib
import stat

import msgspec
import pytest

from partage.kube import errors
from partage.kube.auth import credentials, kubeconfig, logins
from tests.kube import api_clients, kubeconfigs

V1 = "client.authentication.k8s.io/v1"
NOON = dt.datetime(2026, 5, 1, 12, 0, tzinfo=dt.UTC)


@pytest.mark.parametrize(
    ("user", "header"),
    [
        ({"token": "abc"}, "Bearer abc"),
        ({"username": "me", "password": "pass:word"}, "Basic bWU6cGFzczp3b3Jk"),
        ({"token": "abc", "tokenFile": "token"}, "Bearer from-file"),
    ],
    ids=["token", "password", "token file before token"],
)
async def test_what_a_kubeconfig_holds(
    tmp_path: pathlib.Path, user: dict[str, object], header: str
) -> None:
    """It becomes the header of each request."""
    (tmp_path / "token").write_text("from-file\n")
    file = kubeconfigs.kubeconfig(tmp_path / "config", user=user)

    assert await credentials.load(str(file)).headers() == {"Authorization": header}


class TestTokenFiles:
    """Tokens in files are renewed by others, in place."""

    async def test_it_is_read_again_every_minute(self, tmp_path: pathlib.Path) -> None:
        """And not for every request."""
        time, file = api_clients.QuickTime(), tmp_path / "token"
        file.write_text("one")
        login = logins.TokenFile(file, clock=time.clock)
        assert await login.headers() == {"Authorization": "Bearer one"}

        file.write_text("two")
        time.now_s += 59.0
        assert await login.headers() == {"Authorization": "Bearer one"}
        time.now_s += 1.0
        assert await login.headers() == {"Authorization": "Bearer two"}

    async def test_forgetting_reads_at_once(self, tmp_path: pathlib.Path) -> None:
        """After a 401 the old one is of no use."""
        file = tmp_path / "token"
        file.write_text("one")
        login = logins.TokenFile(file, clock=lambda: 0.0)
        await login.headers()

        file.write_text("two")
        login.forget()
        assert await login.headers() == {"Authorization": "Bearer two"}

    async def test_a_file_that_is_away_for_a_moment(self, tmp_path: pathlib.Path) -> None:
        """The token that was read may still hold; a new one is taken as soon as it is there."""
        time, file = api_clients.QuickTime(), tmp_path / "token"
        file.write_text("one")
        login = logins.TokenFile(file, clock=time.clock)
        await login.headers()

        file.unlink()
        time.now_s += 60.0
        assert await login.headers() == {"Authorization": "Bearer one"}
        file.write_text("two")
        assert await login.headers() == {"Authorization": "Bearer two"}

    @pytest.mark.parametrize("content", [None, " \n", "\u00e9s3cret"], ids=["none", "empty", "odd"])
    async def test_no_token(self, tmp_path: pathlib.Path, content: str | None) -> None:
        """The error names the file, and not what is in it."""
        if content is not None:
            (tmp_path / "token").write_text(content)

        with pytest.raises(errors.CredentialsError, match=f"token file {tmp_path}/token") as raised:
            await logins.TokenFile(tmp_path / "token").headers()

        assert "s3cret" not in str(raised.value)


class Plugin:
    """A plugin that prints what a file holds, and counts how often it ran."""

    def __init__(self, folder: pathlib.Path) -> None:
        self.folder = folder
        self.program = folder / "login"
        self.now = NOON
        self.write("exit 3")

    def write(self, shell: str) -> None:
        """What it does."""
        self.program.write_text(
            f'#!/bin/sh\nprintf %s "$KUBERNETES_EXEC_INFO" > {self.folder}/info\n'
            f"echo run >> {self.folder}/runs\n{shell}\n"
        )
        self.program.chmod(stat.S_IRWXU)

    def prints(self, version: str = V1, **status: str) -> None:
        """The credential that it hands out."""
        credential = {"apiVersion": version, "kind": "ExecCredential", "status": status}
        (self.folder / "credential").write_bytes(msgspec.json.encode(credential))
        self.write(f"cat {self.folder}/credential")

    @property
    def runs(self) -> int:
        """How often it ran."""
        runs = self.folder / "runs"
        return len(runs.read_text().splitlines()) if runs.exists() else 0

    def login(self, **settings: object) -> logins.Exec:
        """A login by it."""
        written = {"apiVersion": V1, "command": str(self.program), **settings}
        plugin = msgspec.convert(written, kubeconfig.Plugin)
        return logins.Exec(
            kubeconfig.Entry(plugin, "user 'lab' in config"),
            cluster={"server": "https://lab"},
            environ={"PATH": "/usr/bin:/bin", "KEPT": "yes"},
            now=lambda: self.now,
        )


@pytest.fixture
def plugin(tmp_path: pathlib.Path) -> Plugin:
    """A plugin that fails."""
    return Plugin(tmp_path)


class TestPlugins:
    """Programs that hand out credentials."""

    @pytest.mark.parametrize("version", [V1, f"{V1}beta1"])
    async def test_its_token_is_used(self, plugin: Plugin, version: str) -> None:
        """It is told who asks, in the version that the kubeconfig says, and run once."""
        plugin.prints(version, token="abc")
        login = plugin.login(apiVersion=version)

        assert [await login.headers() for _ in range(2)] == [{"Authorization": "Bearer abc"}] * 2

        assert plugin.runs == 1
        assert msgspec.json.decode((plugin.folder / "info").read_bytes()) == {
            "apiVersion": version,
            "kind": "ExecCredential",
            "spec": {"interactive": False},
        }

    async def test_it_is_run_again_when_the_token_expires(self, plugin: Plugin) -> None:
        """And not before."""
        plugin.prints(token="one", expirationTimestamp="2026-05-01T13:00:00Z")
        login = plugin.login()
        await login.headers()
        plugin.prints(token="two", expirationTimestamp="2026-05-01T16:00:00+02:00")

        plugin.now = NOON + dt.timedelta(minutes=59)
        assert await login.headers() == {"Authorization": "Bearer one"}
        plugin.now = NOON + dt.timedelta(minutes=60)
        assert await login.headers() == {"Authorization": "Bearer two"}
        plugin.now = NOON + dt.timedelta(minutes=119)
        await login.headers()
        assert plugin.runs == 2

    async def test_forgetting_runs_it_again(self, plugin: Plugin) -> None:
        """After a 401."""
        plugin.prints(token="one")
        login = plugin.login()
        await login.headers()
        plugin.prints(token="two")
        login.forget()

        assert await login.headers() == {"Authorization": "Bearer two"}

    async def test_requests_at_the_same_time_run_it_once(self, plugin: Plugin) -> None:
        """The others wait for the first."""
        plugin.prints(token="abc")
        login = plugin.login()

        await asyncio.gather(*(login.headers() for _ in range(5)))

        assert plugin.runs == 1

    async def test_its_surroundings(self, plugin: Plugin) -> None:
        """Its own arguments and variables, those of the process, and the cluster if it asks."""
        token = '{"apiVersion":"%s","status":{"token":"%s"}}'
        plugin.write(f"printf '{token}' {V1} \"$1-$OWN-$KEPT\"")
        login = plugin.login(
            args=["first"], env=[{"name": "OWN", "value": "mine"}], provideClusterInfo=True
        )

        assert await login.headers() == {"Authorization": "Bearer first-mine-yes"}
        info = msgspec.json.decode((plugin.folder / "info").read_bytes())
        assert info["spec"]["cluster"] == {"server": "https://lab"}

    @pytest.mark.parametrize(
        ("shell", "message"),
        [
            ("echo s3cret; echo no such account >&2; exit 7", "status 7: no such account"),
            ("echo s3cret", "did not print an ExecCredential"),
            ('echo \'{"apiVersion":"v2","status":{"token":"s3cret"}}\'', "printed apiVersion 'v2'"),
            (
                f'echo \'{{"apiVersion":"{V1}","status":{{}}}}\'',
                "neither a token nor a client cert",
            ),
            (
                f'echo \'{{"apiVersion":"{V1}","status":{{"clientCertificateData":"x"}}}}\'',
                "a client certificate without key",
            ),
            (
                f'echo \'{{"apiVersion":"{V1}","status":{{"expirationTimestamp":"tomorrow"}}}}\'',
                "did not print an ExecCredential",
            ),
        ],
        ids=["status", "no JSON", "version", "nothing", "no key", "odd date"],
    )
    async def test_it_fails(self, plugin: Plugin, shell: str, message: str) -> None:
        """The error names the user, the program and its complaint, and not what it printed."""
        plugin.write(shell)

        with pytest.raises(errors.CredentialsError, match=message) as raised:
            await plugin.login().headers()

        assert str(raised.value).startswith("user 'lab' in config: exec plugin '")
        assert "s3cret" not in str(raised.value)

    async def test_a_failure_is_not_remembered(self, plugin: Plugin) -> None:
        """The next request tries again."""
        login = plugin.login()
        with pytest.raises(errors.CredentialsError, match="status 3"):
            await login.headers()
        plugin.prints(token="abc")

        assert await login.headers() == {"Authorization": "Bearer abc"}

    async def test_it_is_not_installed(self, plugin: Plugin) -> None:
        """The hint in the kubeconfig says how to get it."""
        login = plugin.login(command="/not/there", installHint="brew install login")

        with pytest.raises(errors.CredentialsError, match=r"No such file.*; brew install login"):
            await login.headers()

    async def test_it_hangs(self, plugin: Plugin, monkeypatch: pytest.MonkeyPatch) -> None:
        """It is ended, and the request with it."""
        monkeypatch.setattr(logins, "_PLUGIN_TIMEOUT_S", 0.1)
        plugin.write(f"echo $$ > {plugin.folder}/pid; exec sleep 60")

        with pytest.raises(errors.CredentialsError, match="did not finish"):
            await plugin.login().headers()

        with pytest.raises(ProcessLookupError):
            os.kill(int((plugin.folder / "pid").read_text()), 0)

    async def test_a_command_beside_the_kubeconfig(self, plugin: Plugin) -> None:
        """A path with a slash is relative to the kubeconfig, a name is looked for on the PATH."""
        plugin.prints(token="abc")
        user = {"exec": {"apiVersion": V1, "command": "./login", "args": None, "env": None}}
        file = kubeconfigs.kubeconfig(plugin.folder / "config", user=user)

        login = credentials.load(str(file), environ={"PATH": "/usr/bin:/bin"})
        assert await login.headers() == {"Authorization": "Bearer abc"}

    async def test_what_it_is_told_of_the_cluster(
        self, plugin: Plugin, certificates: kubeconfigs.Certificates
    ) -> None:
        """All that is needed to reach it, and what the kubeconfig holds for plugins."""
        plugin.prints(token="abc")
        extension = {"name": "client.authentication.k8s.io/exec", "extension": {"audience": "x"}}
        cluster = {
            "server": "https://lab",
            "tls-server-name": "kube.test",
            "certificate-authority": str(certificates.authority),
            "extensions": [extension],
        }
        exec_ = {"apiVersion": V1, "command": str(plugin.program), "provideClusterInfo": True}
        file = kubeconfigs.kubeconfig(
            plugin.folder / "config", cluster=cluster, user={"exec": exec_}
        )
        await credentials.load(str(file)).headers()

        info = msgspec.json.decode((plugin.folder / "info").read_bytes())
        assert info["spec"]["cluster"] == {
            "server": "https://lab",
            "tls-server-name": "kube.test",
            "certificate-authority-data": kubeconfigs.base64_of(certificates.authority),
            "config": {"audience": "x"},
        }

    @pytest.mark.parametrize(
        ("settings", "message"),
        [
            ({"apiVersion": f"{V1}alpha1"}, "apiVersion .* is not supported"),
            ({"interactiveMode": "Always"}, "needs a terminal"),
        ],
    )
    def test_what_we_cannot_give_it(
        self, plugin: Plugin, settings: dict[str, object], message: str
    ) -> None:
        """That is told before the first request."""
        with pytest.raises(errors.CredentialsError, match=message):
            plugin.login(**settings)


def test_secrets_are_not_printed() -> None:
    """A login, a user or a pair in a log line or a traceback shows nothing."""
    user = kubeconfig.User(token="s3cret", password="s3cret", client_key_data="s3cret")
    choice = kubeconfig.Entry(user, "user")

    assert "s3cret" not in repr(choice) + str(choice)
