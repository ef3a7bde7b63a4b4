"""Settings of the webhooks: a slip is told with its place, and what is given is followed."""

from __future__ import annotations

import pathlib

import pytest
from click.testing import CliRunner

from partage.admission import settings, webhooks
from partage.cli import command_group
from partage.services import settings_file


def test_the_defaults_are_those_of_the_manifest() -> None:
    """It serves its Service's name, with a certificate of its own."""
    chosen = settings.load("", {})

    assert chosen.names == ("partage-admission.kube-system.svc",)
    assert chosen.certificate.secret == f"{webhooks.NAME}-tls"
    assert chosen.options.refuse_never


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[pods]\nlarger_than_any_card = 'allow'\n", "choose from refuse, warn"),
        ("[pods]\nruntime = 'nvidia'\n", "there is no setting pods.runtime"),
        ("[certificate]\ncertificate = '/tls.crt'\n", "only one of certificate and key is set"),
        ("[service]\nnames = 'x'\n", "lists of texts in quotes"),
    ],
)
def test_a_slip_is_refused_with_its_place(tmp_path: pathlib.Path, text: str, message: str) -> None:
    """It must not pass for the default."""
    path = tmp_path / "admission.toml"
    path.write_text(text)

    with pytest.raises(settings_file.SettingsError, match=message) as caught:
        settings.load(str(path), {})
    assert "admission.toml" in str(caught.value)


def test_files_that_are_not_there_are_named(tmp_path: pathlib.Path) -> None:
    """A user's mistake: one line, exit code 2, no traceback."""
    path = tmp_path / "admission.toml"
    path.write_text("[certificate]\ncertificate = '/nowhere.crt'\nkey = '/nowhere.key'\n")
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.write_text(
        "apiVersion: v1\nkind: Config\ncurrent-context: x\n"
        "clusters: [{name: x, cluster: {server: 'http://127.0.0.1:1'}}]\n"
        "users: [{name: x, user: {}}]\ncontexts: [{name: x, context: {cluster: x, user: x}}]\n"
    )

    done = CliRunner().invoke(
        command_group.commands,
        ["admission", "--config", str(path), "--kubeconfig", str(kubeconfig)],
    )

    assert isinstance(done.exception, settings_file.SettingsError)
    assert "/nowhere.crt: No such file or directory" in str(done.exception)
