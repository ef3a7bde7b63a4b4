"""Settings of the webhooks: a slip is told with its place, and what is given is followed."""

from __future__ import annotations

import pathlib

import pytest
from click.testing import CliRunner

from partage.admission import settings, webhooks
from partage.cli import command_group
from partage.dialects import model_speeds
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
        ("[pods]\nscheduler_name = 'A b'\n", "'A b' cannot be the name of a scheduler"),
        ("[pods.tflops]\n'*T4' = -1\n", "pods.tflops .* tables with numbers from 0"),
    ],
)
def test_a_slip_is_refused_with_its_place(tmp_path: pathlib.Path, text: str, message: str) -> None:
    """It must not pass for the default."""
    path = tmp_path / "admission.toml"
    path.write_text(text)

    with pytest.raises(settings_file.SettingsError, match=message) as caught:
        settings.load(str(path), {})
    assert "admission.toml" in str(caught.value)


def test_the_speed_of_cards_can_be_told(tmp_path: pathlib.Path) -> None:
    """In order, and in place of Partage's own table."""
    path = tmp_path / "admission.toml"
    path.write_text('[pods.tflops]\n"*9000 Ti*" = 50\n"*9000*" = 12.5\n')

    speeds = settings.load(str(path), {}).dialects.tflops

    assert [(s.pattern, s.tflops) for s in speeds] == [("*9000 Ti*", 50), ("*9000*", 12.5)]
    assert settings.load("", {}).dialects.tflops == model_speeds.SPEEDS


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
