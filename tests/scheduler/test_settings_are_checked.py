"""Settings: a file, the environment over it, flags over both; what is not understood is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from partage.scheduler import http_server, settings
from partage.services import settings_file


def _file(folder: Path, text: str) -> str:
    path = folder / "extender.toml"
    path.write_text(text)
    return str(path)


def test_without_anything_it_listens_on_loopback_at_gpushares_port() -> None:
    """Whoever reaches it can bind pods, so nobody does by accident."""
    chosen = settings.load("", {}, {})
    assert (chosen.server.address, chosen.server.port) == ("127.0.0.1", 39999)
    assert (chosen.decisions.limit, chosen.decisions.limit_without_preference) == (16, 1)


def test_flags_win_over_the_environment_and_that_over_the_file(tmp_path: Path) -> None:
    """The nearer, the stronger."""
    path = _file(tmp_path, 'log_level = "error"\n[server]\nport = 1\n[decisions]\nnodes = "all"\n')
    environ = {"PORT": "12345", "LOG_LEVEL": "debug", "THREADNESS": "4"}
    chosen = settings.load(path, environ, {"server.port": 3})
    assert (chosen.server.port, chosen.log_level, chosen.decisions.limit) == (3, "debug", 0)
    assert settings.load(path, environ, {}).server.port == 12345
    assert settings.load(path, {}, {}).log_level == "error"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[server]\nprot = 1\n", "there is no setting server.prot; choose from address, port"),
        ("[sever]\n", "there is no setting sever"),
        ("[server]\nport = 70000\n", "server.port = 70000 is not allowed; .* from 0 to 65535"),
        ("[server]\nport = '1'\n", "server.port = '1' is not allowed"),
        ("server = 3\n", "server is not a table"),
        ("[decisions]\nnodes = 0\n", "choose from numbers from 1, all, auto"),
        ("[decisions]\npolicy = 'best'\n", "best.*; choose from priced, binpack, spread"),
        ("[decisions]\nhold_s = 1\n", "hold_s = 1 is not allowed; choose from numbers from 10"),
        ("[server]\ncertificate = 'x'\n", "only one of certificate and key"),
        ("[server]\nclient_ca = 'x'\n", "over TLS only"),
        ("[server\n", "extender.toml"),
        (
            "[server]\ncertificate = 'c'\nkey = 'k'\n[certificates]\nown = true\n",
            "own is true, and .server. names files",
        ),
        ("[certificates]\nsecret = 'a'\nscheduler_secret = 'a'\n", "are the same; give two names"),
        ("[certificates]\nnamespace = '../x'\n", "namespace: '../x' is not a name"),
        ("[certificates]\nnames = ['a b']\n", "'a b' is neither the name of a host nor an addr"),
    ],
)
def test_what_is_not_understood_is_refused_with_its_place(
    tmp_path: Path, text: str, message: str
) -> None:
    """A slip must not pass for the default."""
    with pytest.raises(settings_file.SettingsError, match=message.replace("$", r"\$")) as caught:
        settings.load(_file(tmp_path, text), {}, {})
    assert "extender.toml" in str(caught.value)


def test_a_mistake_in_the_file_is_told_even_if_a_flag_covers_it(tmp_path: Path) -> None:
    """It will not be covered for ever."""
    with pytest.raises(settings_file.SettingsError, match="port"):
        settings.load(_file(tmp_path, "[server]\nport = 'x'\n"), {}, {"server.port": 3})


@pytest.mark.parametrize(("text", "level"), [("DEBUG", "debug"), ("warning", "warn")])
def test_levels_are_taken_in_any_letter_case(text: str, level: str) -> None:
    """As manifests have them."""
    assert settings.load("", {"LOG_LEVEL": text}, {}).log_level == level
    with pytest.raises(
        settings_file.SettingsError, match="LOG_LEVEL='loud' is not a level; choose"
    ):
        settings.load("", {"LOG_LEVEL": "loud"}, {})


@pytest.mark.parametrize("name", ["PORT", "THREADNESS"])
def test_a_number_in_the_environment_has_to_be_one(name: str) -> None:
    """gpushare took any other text for its default."""
    with pytest.raises(settings_file.SettingsError, match=f"{name}='many' is not a number"):
        settings.load("", {name: "many"}, {})


def test_a_file_that_is_not_there_is_named() -> None:
    """As any error."""
    with pytest.raises(settings_file.SettingsError, match=r"/nowhere\.toml: No such file"):
        settings.load("/nowhere.toml", {}, {})


def test_what_listening_elsewhere_means_is_said() -> None:
    """Except where clients have to show a certificate."""
    at = settings.Server
    assert http_server.exposure(at()) == ""
    assert "without TLS: everybody who can reach it can bind pods" in http_server.exposure(
        at("0.0.0.0")
    )
    assert "without client certificates" in http_server.exposure(
        at("0.0.0.0", certificate="c", key="k")
    )
    assert http_server.exposure(at("0.0.0.0", certificate="c", key="k", client_ca="a")) == ""


def test_certificates_of_its_own_are_for_the_service_and_what_else_is_named(
    tmp_path: Path,
) -> None:
    """And then clients have to show one."""
    path = _file(tmp_path, "[certificates]\nnames = ['10.0.0.1', 'gpu.example']\n")
    chosen = settings.load(path, {}, {"certificates.own": True})
    service = "partage-extender.kube-system.svc"
    assert chosen.certificates.host_names == (service, "10.0.0.1", "gpu.example")
    assert chosen.certified
    assert not settings.load("", {}, {}).certified


def test_times_that_were_not_written_fit_what_was() -> None:
    """Whoever changes one of them need not know the others."""
    for http_timeout_s in (3, 5, 10, 30, 120):
        chosen = settings.load("", {}, {"scheduler.http_timeout_s": http_timeout_s})
        assert chosen.bind_timeout_s < chosen.scheduler.patience_s
        assert chosen.hold_s >= http_timeout_s


@pytest.mark.parametrize(
    ("written", "message"),
    [
        ({"binds.timeout_s": 12}, "binds.timeout_s = 12 is too long: kube-scheduler gives up"),
        ({"decisions.hold_s": 12, "scheduler.http_timeout_s": 20}, "decisions.hold_s = 12"),
        ({"leader.elect": True, "leader.renew_s": 600}, "leader.renew_s = 600 is too long"),
        (
            {"leader.elect": True, "binds.timeout_s": 12, "scheduler.http_timeout_s": 15},
            "too long for leader.lease_s = 15",
        ),
    ],
)
def test_times_that_do_not_fit_together_are_refused(written: dict[str, Any], message: str) -> None:
    """With the one that is wrong, and what to write."""
    with pytest.raises(settings_file.SettingsError, match=message.replace(".", r"\.")) as refused:
        settings.load("", {}, written)
    assert refused.value.instead
