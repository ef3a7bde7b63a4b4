"""The extender's own certificates on a real API server, and believed by a real kube-scheduler."""

from __future__ import annotations

import asyncio
import base64
import datetime as dt
import ssl
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent import futures
from pathlib import Path

import msgspec
import pytest

from cluster import api, child_processes, objects
from cluster.control_plane import scheduler_config
from cluster.control_plane.control_plane import ControlPlane
from cluster.partage_processes import extender_process
from partage.kube import api as kube
from partage.kube.auth import credentials
from partage.scheduler import own_certificates, settings
from partage.services import certificates, listener, serving_context
from partage.services.http import messages, routes, servers
from tests.cluster import installing, making, service_accounts
from tests.cluster.making import MEMORY

SERVER, CLIENT = "partage-extender-tls", "partage-scheduler-tls"
CHOSEN = settings.Certificates(own=True, names=(child_processes.LOOPBACK,))
DAY = dt.timedelta(days=1)


@pytest.fixture
def plane(clean_cluster: ControlPlane) -> Iterator[ControlPlane]:
    """A control plane with the rights of the manifest, and without the Secrets."""
    installing.apply(clean_cluster, installing.manifests("extender.yaml"))
    _forget(clean_cluster)
    yield clean_cluster
    _forget(clean_cluster)


@pytest.fixture
def new_replica(
    plane: ControlPlane, tmp_path: Path
) -> Iterator[Callable[[], extender_process.Extender]]:
    """Makes replicas with their service account's rights, which are gone when the test ends."""
    made: list[extender_process.Extender] = []
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.write_text(service_accounts.kubeconfig(plane, "partage-extender"))

    def new() -> extender_process.Extender:
        made.append(
            extender_process.Extender(
                tmp_path, kubeconfig, name=f"extender-{len(made)}", own_certificates=True
            )
        )
        return made[-1]

    yield new
    for replica in made:
        replica.close()


class Clock:
    """A clock that a test sets."""

    def __init__(self) -> None:
        self.now = dt.datetime.now(dt.UTC)

    def __call__(self) -> dt.datetime:
        """What it shows."""
        return self.now


class Replica:
    """What keeps the certificates, in this process, with a clock of its own."""

    def __init__(self, client: kube.Api) -> None:
        self.clock = Clock()
        self.problem = ""
        self.own = own_certificates.OwnCertificates(
            client, CHOSEN, now=self.clock, report=self._report
        )

    def _report(self, text: str) -> None:
        self.problem = text


@pytest.fixture
async def client(plane: ControlPlane) -> AsyncIterator[kube.Api]:
    """The API server, for what runs in this process."""
    async with kube.Api(credentials.load(str(plane.kubeconfig), None)) as opened:
        yield opened


def _forget(plane: ControlPlane) -> None:
    for name in (SERVER, CLIENT):
        try:
            plane.client.delete("Secret", name, installing.SYSTEM)
        except api.ApiError as error:
            if error.status != 404:
                raise


def _data(plane: ControlPlane, name: str) -> dict[str, bytes]:
    stored = plane.client.get("Secret", name, installing.SYSTEM)["data"]
    return {field: base64.b64decode(text) for field, text in stored.items()}


def _write(plane: ControlPlane, name: str, **changes: bytes | None) -> None:
    """Change parts of a Secret; ``tls_crt`` stands for tls.crt, and None removes it."""
    data = {
        field.replace("_", "."): None if value is None else base64.b64encode(value).decode()
        for field, value in changes.items()
    }
    plane.client.patch("Secret", name, {"data": data}, namespace=installing.SYSTEM)


def _authority(plane: ControlPlane) -> certificates.Pair:
    data = _data(plane, SERVER)
    return certificates.Pair(data["ca.crt"], data["ca.key"])


def _trust(plane: ControlPlane, *, with_certificate: bool) -> ssl.SSLContext:
    """What a client believes that has the files for kube-scheduler, or only the authority."""
    data = _data(plane, CLIENT)
    context = ssl.create_default_context(cadata=data["ca.crt"].decode())
    if with_certificate:
        serving_context.load(context, data["tls.crt"], data["tls.key"])
    return context


def _status(url: str, trust: ssl.SSLContext) -> int:
    try:
        with urllib.request.urlopen(url, context=trust, timeout=30) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        return error.code


def _schedule(plane: ControlPlane, extender: extender_process.Extender, folder: Path) -> None:
    """A kube-scheduler with the files of its Secret, as a pod would mount them."""
    for name, content in _data(plane, CLIENT).items():
        (folder / name).write_bytes(content)
    plane.start_scheduler(
        scheduler_config.partage(
            plane.kubeconfig, port=extender.port, advertised=making.ADVERTISED, files=folder
        )
    )


def test_replicas_that_start_at_once_have_one_authority(
    plane: ControlPlane, new_replica: Callable[[], extender_process.Extender]
) -> None:
    """Whoever believes the one believes the other, and both know kube-scheduler."""
    replicas = [new_replica() for _ in range(2)]
    with futures.ThreadPoolExecutor(2) as pool:
        list(pool.map(lambda replica: replica.start(), replicas))

    certified = _trust(plane, with_certificate=True)
    for replica in replicas:
        assert _status(f"{replica.url}/gpushare-scheduler/inspect", certified) == 200
        assert "forbidden" not in replica.log(lines=1000)
    assert sorted(_data(plane, SERVER)) == ["ca.crt", "ca.key", "tls.crt", "tls.key"]
    assert sorted(_data(plane, CLIENT)) == ["ca.crt", "tls.crt", "tls.key"]
    assert _data(plane, CLIENT)["ca.crt"] == _data(plane, SERVER)["ca.crt"]


def test_kube_scheduler_talks_with_what_was_made_and_nobody_else_does(
    plane: ControlPlane, new_replica: Callable[[], extender_process.Extender], tmp_path: Path
) -> None:
    """It goes on when the extender comes back with the next certificate."""
    extender = new_replica()
    extender.start()
    _schedule(plane, extender, tmp_path)
    plane.client.create(objects.node("n1", cards=2, card_units=16))
    plane.client.create(objects.pod("first", {MEMORY: 10}))
    assert making.grant(making.bound(plane, "first"))

    anonymous = _trust(plane, with_certificate=False)
    assert _status(f"{extender.url}/gpushare-scheduler/inspect", anonymous) == 401
    assert _status(f"{extender.url}/readyz", anonymous) == 200
    stranger = certificates.client("x", certificates.authority("x", _now()), _now())
    serving_context.load(anonymous, stranger.certificate_pem, stranger.key_pem)
    with pytest.raises(OSError, match=r"unknown ca|reset|closed"):
        _status(f"{extender.url}/readyz", anonymous)

    old = certificates.serving(CHOSEN.host_names, _authority(plane), _now() - 70 * DAY)
    _write(plane, SERVER, tls_crt=old.certificate_pem, tls_key=old.key_pem)
    before = _data(plane, CLIENT)
    extender.stop()
    extender.start()
    plane.client.create(objects.pod("second", {MEMORY: 10}))

    assert making.grant(making.bound(plane, "second"))
    assert _data(plane, SERVER)["tls.crt"] != old.certificate_pem
    assert _data(plane, CLIENT) == before


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        ({"ca_key": b"nonsense"}, "ca.crt and ca.key: it is not a private key in PEM; put back"),
        ({"ca_crt": b"nonsense"}, "ca.crt and ca.key: it is not a certificate in PEM; put back"),
        ({"ca_key": None}, "ca.key is missing; put back what it had; or, if these are certificat"),
    ],
    ids=["key", "certificate", "made-by-hand"],
)
def test_a_damaged_authority_ends_the_start_and_stays_as_it_is(
    plane: ControlPlane,
    new_replica: Callable[[], extender_process.Extender],
    damage: dict[str, bytes | None],
    words: str,
) -> None:
    """A new one would be refused by the kube-scheduler that runs."""
    extender = new_replica()
    extender.start()
    extender.stop()
    _write(plane, SERVER, **damage)
    before = _data(plane, SERVER)

    with pytest.raises(child_processes.ProgramFailed):
        extender.start()

    said = extender.log(lines=3)
    assert f"Secret kube-system/{SERVER}: {words}" in said
    assert "Traceback" not in said
    assert _data(plane, SERVER) == before


def test_an_authority_that_was_lost_is_not_made_anew(
    plane: ControlPlane, new_replica: Callable[[], extender_process.Extender]
) -> None:
    """As long as kube-scheduler has files of it."""
    extender = new_replica()
    extender.start()
    extender.stop()
    plane.client.delete("Secret", SERVER, installing.SYSTEM)

    with pytest.raises(child_processes.ProgramFailed):
        extender.start()
    assert f"{SERVER} is not there, but Secret kube-system/{CLIENT} is" in extender.log(lines=3)

    plane.client.delete("Secret", CLIENT, installing.SYSTEM)
    extender.start()
    assert _data(plane, CLIENT)["ca.crt"] == _data(plane, SERVER)["ca.crt"]


async def test_a_certificate_is_renewed_under_connections_that_go_on(
    plane: ControlPlane, client: kube.Api
) -> None:
    """New connections get the new one; the authority and kube-scheduler's stay."""
    replica = Replica(client)
    replica.clock.now -= 61 * DAY
    await replica.own.prepare()
    first, scheduler = _data(plane, SERVER), _data(plane, CLIENT)
    site = routes.Routes(certified=True)
    site.get("/x", lambda _request: messages.Answer(b"here"))
    address = listener.Address(child_processes.LOOPBACK, 0, replica.own.context)
    trust = await asyncio.to_thread(_trust, plane, with_certificate=True)
    async with servers.at(address, site) as url:
        open_one = await _opened(url, trust)
        replica.clock.now += 61 * DAY
        await replica.own.look()
        second, new_one = _data(plane, SERVER), await _opened(url, trust)

        assert _shown(open_one) == first["tls.crt"] != second["tls.crt"] == _shown(new_one)
        for connection in (open_one, new_one):
            assert await _asked(connection) == b"here"
            connection.writer.close()
    assert {**second, "tls.crt": b"", "tls.key": b""} == {**first, "tls.crt": b"", "tls.key": b""}
    assert _data(plane, CLIENT) == scheduler
    assert certificates.ends(second["tls.crt"]) - replica.clock.now == 90 * DAY - _fraction(replica)


async def test_replicas_that_renew_at_once_end_up_with_the_same(
    plane: ControlPlane, client: kube.Api
) -> None:
    """The second reads what the first wrote."""
    replicas = [Replica(client) for _ in range(2)]
    await asyncio.gather(*(replica.own.prepare() for replica in replicas))
    for replica in replicas:
        replica.clock.now += 61 * DAY

    await asyncio.gather(*(replica.own.look() for replica in replicas))

    assert {await _served_now(replica) for replica in replicas} == {_data(plane, SERVER)["tls.crt"]}


async def test_what_is_damaged_under_a_running_extender(
    plane: ControlPlane, client: kube.Api
) -> None:
    """What the authority signed is made again; the authority itself is put back, or missed."""
    replica = Replica(client)
    await replica.own.prepare()
    good = _data(plane, SERVER)

    _write(plane, SERVER, tls_key=b"nonsense")
    _write(plane, CLIENT, tls_crt=b"")
    await replica.own.look()
    assert _data(plane, SERVER)["ca.crt"] == good["ca.crt"] == _data(plane, CLIENT)["ca.crt"]
    for name in (SERVER, CLIENT):
        data = _data(plane, name)
        certificates.check(certificates.Pair(data["tls.crt"], data["tls.key"]))

    _forget(plane)
    await replica.own.look()
    assert _authority(plane) == certificates.Pair(good["ca.crt"], good["ca.key"])
    assert _data(plane, CLIENT)["ca.crt"] == good["ca.crt"]
    assert replica.problem == ""

    other = certificates.authority("other", _now())
    _write(plane, SERVER, ca_crt=other.certificate_pem, ca_key=other.key_pem)
    await replica.own.look_again()
    assert "has another authority than this process serves with" in replica.problem
    assert await _served_now(replica) == _data(plane, SERVER)["tls.crt"]


async def test_files_of_another_authority_are_told_and_left_alone(
    plane: ControlPlane, client: kube.Api
) -> None:
    """Somebody put them there."""
    replica = Replica(client)
    await replica.own.prepare()
    _write(plane, CLIENT, ca_crt=certificates.authority("other", _now()).certificate_pem)
    before = _data(plane, CLIENT)

    await replica.own.look()

    assert "is not the authority of Secret kube-system/partage-extender-tls" in replica.problem
    assert _data(plane, CLIENT) == before
    plane.client.delete("Secret", CLIENT, installing.SYSTEM)
    await replica.own.look()
    assert replica.problem == ""


async def test_an_old_authority_is_told_of_for_years_and_signs_to_its_end(
    plane: ControlPlane, client: kube.Api
) -> None:
    """What it signs never outlives it, and is not made anew over and over."""
    replica = Replica(client)
    await replica.own.prepare()
    end = certificates.ends(_authority(plane).certificate_pem)

    replica.clock.now = end - 3 * 365 * DAY
    await replica.own.look()
    assert f"its authority ends on {end.date()}" in replica.problem

    replica.clock.now = end - 2 * DAY
    await replica.own.look()
    last = _data(plane, SERVER)["tls.crt"]
    assert certificates.ends(last) == end
    replica.clock.now = end - DAY / 24
    await replica.own.look()
    assert _data(plane, SERVER)["tls.crt"] == last

    replica.clock.now = end + DAY
    with pytest.raises(own_certificates.AuthorityError, match="its authority has ended"):
        await replica.own.look()


def test_its_account_reads_its_two_secrets_and_no_other(plane: ControlPlane) -> None:
    """It cannot list them, nor delete them."""
    for name in (SERVER, CLIENT):
        for verb in ("get", "update"):
            assert service_accounts.may(plane, "partage-extender", verb, "secrets", name=name)
        for verb in ("delete", "patch"):
            assert not service_accounts.may(plane, "partage-extender", verb, "secrets", name=name)
    for verb in ("get", "list", "update"):
        assert not service_accounts.may(plane, "partage-extender", verb, "secrets")
    assert not service_accounts.may(
        plane, "partage-extender", "create", "secrets", namespace="default"
    )


class Connection(msgspec.Struct):
    """A connection over TLS."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter


async def _opened(url: str, trust: ssl.SSLContext) -> Connection:
    where = urllib.parse.urlsplit(url)
    return Connection(*await asyncio.open_connection(where.hostname, where.port, ssl=trust))


def _shown(connection: Connection) -> bytes:
    """The certificate of the server; PEM."""
    tls = connection.writer.get_extra_info("ssl_object")
    return ssl.DER_cert_to_PEM_cert(tls.getpeercert(binary_form=True)).encode()


async def _asked(connection: Connection) -> bytes:
    """The end of an answer."""
    connection.writer.write(b"GET /x HTTP/1.1\r\nHost: x\r\n\r\n")
    await connection.reader.readuntil(b"\r\n\r\n")
    return await connection.reader.readexactly(len(b"here"))


async def _served_now(replica: Replica) -> bytes:
    """What a replica shows to a new connection; PEM."""

    async def closed(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.close()

    server = await asyncio.start_server(
        closed, child_processes.LOOPBACK, 0, ssl=replica.own.context
    )
    async with server:
        address = server.sockets[0].getsockname()
        return (await asyncio.to_thread(ssl.get_server_certificate, address)).encode()


def _now() -> dt.datetime:
    return dt.datetime.now(dt.UTC)


def _fraction(replica: Replica) -> dt.timedelta:
    """Certificates count whole seconds."""
    return dt.timedelta(microseconds=replica.clock.now.microsecond)
