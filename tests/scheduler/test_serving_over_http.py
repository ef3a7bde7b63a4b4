"""The HTTP side: probes, metrics, errors, TLS with client certificates."""

from __future__ import annotations

import json
import ssl
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import pytest

from partage.kube import errors as kube_errors
from partage.scheduler import http_server, settings
from partage.services import listener, settings_file
from partage.services.http import servers
from tests.scheduler import extender_parts, one_pod_server, small_cluster

ANY = listener.Address("127.0.0.1", 0)


class Site:
    """The routes over a cluster without a cluster."""

    def __init__(self, *, certified: bool = False) -> None:
        self.cluster = small_cluster.Cluster()
        self.cluster.mirror.nodes.put(small_cluster.node())
        self.server = one_pod_server.Server()
        self.wired = extender_parts.Wired(self.cluster, self.server)
        self.application = http_server.application(self.wired.served(certified=certified))


@pytest.fixture
def site() -> Site:
    """A site."""
    return Site()


@pytest.fixture
async def client(site: Site) -> AsyncIterator[aiohttp.ClientSession]:
    """A client of it."""
    async with (
        servers.at(ANY, site.application, http_server.LIMITS) as url,
        aiohttp.ClientSession(url) as connected,
    ):
        yield connected


async def test_it_is_ready_only_when_it_may_answer(
    site: Site, client: aiohttp.ClientSession
) -> None:
    """A Service asks here only then; whoever asks all the same hears why not."""
    assert (await client.get("/readyz")).status == 200
    site.wired.stopped = "another replica leads"
    answer = await client.get("/readyz")
    assert (answer.status, await answer.text()) == (503, "another replica leads")
    assert (await client.get("/healthz")).status == 200
    body = small_cluster.args(small_cluster.wire_pod("p", {small_cluster.MEMORY: "3"}), ["n1"])
    for verb in ("/scheduler/filter", "/gpushare-scheduler/filter", "/scheduler/bind"):
        answer_body = await (await client.post(verb, data=body)).json()
        assert answer_body["Error"] == "another replica leads"
    assert await (await client.post("/scheduler/prioritize", data=body)).json() == []
    preempted = await (await client.post("/scheduler/preempt", data=body)).json()
    assert preempted == {"NodeNameToMetaVictims": {}}


async def test_the_version_is_gpushares(client: aiohttp.ClientSession) -> None:
    """Its clients compare it."""
    answer = await client.get("/version")
    assert (await answer.text(), answer.content_type) == ("0.1.0", "text/plain")


async def test_a_failure_inside_is_an_answer_and_not_a_traceback(
    site: Site, client: aiohttp.ClientSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """kube-scheduler discards the body of anything but 200."""

    def broken(*_args: object, **_more: object) -> None:
        raise RuntimeError("secret")

    monkeypatch.setattr(site.cluster.mirror, "demand", broken)
    body = small_cluster.args(small_cluster.wire_pod("p", {small_cluster.MEMORY: "3"}), ["n1"])
    answer = await client.post("/scheduler/filter", data=body)
    assert answer.status == 200
    assert json.loads(await answer.read())["Error"] == "internal error of Partage; see its log"


async def test_metrics_are_few_and_name_no_card(site: Site, client: aiohttp.ClientSession) -> None:
    """Latencies, holds, binds, and what is granted by group."""
    body = small_cluster.args(small_cluster.wire_pod("p", {small_cluster.MEMORY: "3"}), ["n1"])
    await client.post("/scheduler/filter", data=body)
    page = await (await client.get("/metrics")).text()
    assert 'partage_verb_seconds_count{verb="filter"} 1.0' in page
    assert "partage_holds 1.0" in page
    assert 'partage_cards{group="unknown"} 2.0' in page
    assert 'partage_memory_granted_bytes{group="unknown"} 3.221225472e+09' in page
    assert "index-0" not in page
    assert "n1" not in page


async def test_explain_tells_of_pods_that_are_not_there(
    site: Site, client: aiohttp.ClientSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the status that says whose fault it is."""
    site.server.pod = None
    assert (await client.get("/explain/default/p")).status == 404
    assert (await client.get("/explain/default/%2e%2e")).status in (400, 404)
    assert (await client.get("/explain/default/UPPER")).status == 400

    async def down(*_args: object, **_more: object) -> None:
        raise kube_errors.Unreachable("no API server", sent=False)

    monkeypatch.setattr(site.server, "get", down)
    answer = await client.get("/explain/default/p")
    assert (answer.status, await answer.json()) == (502, {"error": "no API server"})


async def test_explain_and_fit_tell_what_is_wrong_or_possible(
    site: Site, client: aiohttp.ClientSession
) -> None:
    """A request that is not allowed, one that asks for nothing, one that is too large."""
    for limits, summary in (
        ({small_cluster.MEMORY: "3G"}, "never: spec.containers[0]"),
        ({"cpu": "1"}, "it asks for no GPU"),
        ({small_cluster.MEMORY: "17"}, "never: container main asks for 17408 MiB"),
        ({small_cluster.MEMORY: "16"}, "it fits on n1"),
    ):
        pod = small_cluster.wire_pod("x", limits)
        answer_body = await (await client.post("/fit", json=pod)).json()
        assert answer_body["summary"].startswith(summary), answer_body
    for body in (b"{", b"{}", b'{"kind": "Deployment", "spec": {"template": {}}}', b"kind: Pod"):
        assert (await client.post("/fit", data=body)).status == 400


def _certificates(folder: Path) -> None:
    """A CA, and a certificate for the server and one for a client."""

    def openssl(*args: str) -> None:
        subprocess.run(["openssl", *args], cwd=folder, check=True, capture_output=True)

    made = ("-newkey", "rsa:2048", "-nodes", "-subj", "/CN=x")
    openssl("req", "-x509", *made, "-keyout", "ca.key", "-out", "ca.pem", "-days", "2")
    (folder / "san").write_text("subjectAltName=IP:127.0.0.1")
    for name in ("server", "client"):
        openssl("req", *made, "-keyout", f"{name}.key", "-out", f"{name}.csr")
        openssl(
            *f"x509 -req -in {name}.csr -CA ca.pem -CAkey ca.key -CAcreateserial -days 2".split(),
            *f"-out {name}.pem -extfile san".split(),
        )


async def test_with_a_client_ca_only_clients_with_a_certificate_are_answered(
    tmp_path: Path,
) -> None:
    """But for the probes of a kubelet, which has none, and the sums of the metrics."""
    site = Site(certified=True)
    _certificates(tmp_path)
    at = {name: str(tmp_path / f"{name}.pem") for name in ("server", "client", "ca")}
    keys = {name: str(tmp_path / f"{name}.key") for name in ("server", "client")}
    chosen = settings.Server(certificate=at["server"], key=keys["server"], client_ca=at["ca"])
    address = listener.Address("127.0.0.1", 0, http_server.tls(chosen))
    anonymous = ssl.create_default_context(cafile=at["ca"])
    certified = ssl.create_default_context(cafile=at["ca"])
    certified.load_cert_chain(at["client"], keys["client"])
    async with (
        servers.at(address, site.application, http_server.LIMITS) as url,
        aiohttp.ClientSession(url) as session,
    ):
        for path, trust, status in (
            ("/gpushare-scheduler/inspect", certified, 200),
            ("/gpushare-scheduler/inspect", anonymous, 401),
            ("/explain/default/p", anonymous, 401),
            ("/nowhere", anonymous, 401),
            ("/nowhere", certified, 404),
            ("/metrics", anonymous, 200),
            ("/readyz", anonymous, 200),
            ("/healthz", anonymous, 200),
        ):
            async with session.get(path, ssl=trust) as answer:
                assert answer.status == status, (path, status)
        async with session.post("/scheduler/bind", ssl=anonymous, data=b"{}") as answer:
            assert answer.status == 401


def test_a_certificate_that_cannot_be_read_is_a_users_mistake() -> None:
    """One line, not a traceback."""
    with pytest.raises(settings_file.SettingsError, match="certificate: /nowhere: No such file"):
        http_server.tls(settings.Server(certificate="/nowhere", key="/nowhere"))
    with pytest.raises(settings_file.SettingsError, match="cannot be used together"):
        http_server.tls(settings.Server(certificate=__file__, key=__file__))
