"""A control plane: etcd, API server, scheduler and controller manager, all on loopback.

It is the real thing, in the versions of ``cluster/programs/go.mod``. Nodes are not part of it.
There may be real ones (:mod:`cluster.node`), but most tests make do with Node objects
(:mod:`cluster.objects`), to which pods are bound and where they never start. For that reason two
admission plugins are off: the one that taints a new node until a controller has seen its kubelet,
and, if no controller manager runs, the one that refuses pods in a namespace without a service
account, as only that manager would make one.

With a network (:mod:`cluster.network.network`) it runs in a network namespace with its nodes, and
pods reach it as in every cluster. Its ports on the machine's loopback interface lead there, so for
tests nothing is different.

Everything is in one folder. Writes to disk are not synced: a crash of the machine loses the state,
a crash of a program does not. All calls block; a coroutine uses :func:`asyncio.to_thread`.
"""

from __future__ import annotations

import shutil
import signal
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from cluster import api, child_processes
from cluster.control_plane import access_files, etcd, scheduler_config
from cluster.network import addresses, network
from cluster.programs import kubernetes_build

ETCD = "etcd"
APISERVER = "apiserver"
SCHEDULER = "scheduler"
SECOND_SCHEDULER = "second-scheduler"
CONTROLLERS = "controller-manager"
NETWORK = "network"  # a folder, if there is one
NAMES = (SCHEDULER, CONTROLLERS, APISERVER, ETCD)  # in the order in which they are stopped
_ALL_NAMES = (SECOND_SCHEDULER, *NAMES)  # the first of them runs in few tests

_LISTEN = child_processes.LOOPBACK
_EVERYWHERE = "0.0.0.0"
# Nobody vouches for whoever asks the scheduler how it is, so everybody may.
_OPEN = "--authorization-always-allow-paths=/healthz,/readyz,/livez,/metrics"
# No kubelet renews a lease here; this controller would taint every node for it.
_CONTROLLERS = "*,-node-lifecycle-controller"


class ControlPlane:
    """A control plane; at the end of a ``with`` block it is stopped, and only its logs stay.

    ``controllers`` adds the controller manager, ``networked`` a network for nodes and pods. With
    ``ends_with_parent`` the programs die with this process, in whatever way it ends; without, they
    stay. ``apiserver_options`` go to kube-apiserver as they are.
    """

    def __init__(
        self,
        folder: Path,
        *,
        controllers: bool = False,
        networked: bool = False,
        ends_with_parent: bool = True,
        apiserver_options: Sequence[str] = (),
    ) -> None:
        self.folder = folder.resolve()
        self.kubeconfig = self.folder / "kubeconfig"
        self._controllers = controllers
        self._options = tuple(apiserver_options)
        self._programs = kubernetes_build.programs_folder()
        self._pki = self.folder / "pki"
        self.network = (
            network.Network(self.folder / NETWORK, ends_with_parent=ends_with_parent)
            if networked
            else None
        )
        run = self.folder / "run"
        self._processes = {
            name: child_processes.Process(name, run, ends_with_parent=ends_with_parent)
            for name in _ALL_NAMES
        }
        self._ports: dict[str, child_processes.Port] = {}
        self._client: api.Api | None = None

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, _type: type[BaseException] | None, _e: BaseException | None, _t: TracebackType | None
    ) -> None:
        self.stop()
        shutil.rmtree(self.folder / "etcd", ignore_errors=True)  # 128 MB, however little is in it

    @property
    def client(self) -> api.Api:
        """A client with the administrator's rights."""
        if self._client is None:
            self._client = api.Api.of(self.kubeconfig)
        return self._client

    @property
    def server(self) -> str:
        """The address of the API server; its certificate names this machine in one of two ways."""
        machine = "localhost" if self.network else _LISTEN
        return f"https://{machine}:{self._port(APISERVER)}"

    @property
    def server_for_nodes(self) -> str:
        """The address of the API server for who is on a node."""
        return f"https://{addresses.HUB}:{self._port(APISERVER)}" if self.network else self.server

    @property
    def scheduler_url(self) -> str:
        """The address of the scheduler, where it tells how it is."""
        return f"https://{_LISTEN}:{self._port(SCHEDULER)}"

    @property
    def certificate(self) -> Path:
        """The certificate that the API server shows, which is its own authority."""
        return self._pki / "apiserver.crt"

    @property
    def certificate_key(self) -> Path:
        """The key of that certificate, for what stands in front of the API server."""
        return self._pki / "apiserver.key"

    def start(self) -> Self:
        """Start everything but the scheduler; if one part fails, nothing is left running."""
        kubernetes_build.ensure()
        self._make_folder()
        try:
            if self.network:
                self._start_network(self.network)
            self._start_etcd()
            self.start_apiserver()
            if self._controllers:
                self._start_controllers()
            if self.network:
                self.network.start_names(self.kubeconfig)
        except BaseException:
            self.stop()
            raise
        return self

    def stop(self) -> None:
        """Stop everything. The state is not saved more than it is, so nobody is asked twice."""
        if self._client is not None:
            self._client.close()
            self._client = None
        for name in _ALL_NAMES:
            self._processes[name].kill()
        if self.network:
            self.network.stop()
        for port in self._ports.values():
            port.release()
        self._ports.clear()

    def start_apiserver(self) -> None:
        """Start the API server, on the same port as before, and wait until it is ready."""
        process = self._processes[APISERVER]
        self._run(process, "kube-apiserver", *self._apiserver_options())
        # It makes its certificate at the first start, and writes the key after it.
        process.wait_until(self.certificate_key.exists)
        if not self.kubeconfig.exists():
            self.write_kubeconfig(self.kubeconfig, access_files.ADMIN)
        process.wait_until(self.client.is_ready)
        process.wait_until(self._has_default_namespace)

    def stop_apiserver(self) -> None:
        """Stop the API server as an administrator would."""
        self._processes[APISERVER].stop()

    def kill_apiserver(self) -> None:
        """Stop the API server as a crash would."""
        self._processes[APISERVER].kill()

    def pause_apiserver(self) -> None:
        """Stop the API server in the middle of what it does: it keeps connections, and is mute."""
        self._processes[APISERVER].signal(signal.SIGSTOP)

    def resume_apiserver(self) -> None:
        """Let the API server go on where it was paused."""
        self._processes[APISERVER].signal(signal.SIGCONT)

    def compact_etcd(self) -> None:
        """Make every resource version known so far too old to watch from.

        The API server answers watches from its own memory, which is longer than etcd's, so it is
        restarted.
        """
        etcd.compact(self._port(ETCD))
        self.kill_apiserver()
        self.start_apiserver()

    def start_scheduler(self, configuration: str = "", *, name: str = SCHEDULER) -> None:
        """Start the scheduler, in place of one that runs; ``scheduler_config`` has texts.

        With the ``name`` SECOND_SCHEDULER it is another one beside it.
        """
        self._processes[name].kill()
        path = self.folder / f"{name}.yaml"
        path.write_text(configuration or scheduler_config.plain(self.kubeconfig))
        options = [f"--config={path}", "--leader-elect=false", _OPEN, *self._serving(name)]
        process = self._processes[name]
        self._run(process, "kube-scheduler", *options)
        ready = f"https://{_LISTEN}:{self._port(name)}/readyz"
        process.wait_until(lambda: child_processes.answers(ready))

    def stop_scheduler(self) -> None:
        """Stop the scheduler, if one runs, and the second one."""
        for name in (SCHEDULER, SECOND_SCHEDULER):
            self._processes[name].kill()

    def write_kubeconfig(self, path: Path, user: str, *, server: str = "") -> None:
        """How one of the users of :mod:`cluster.control_plane.access_files` reaches the API server.

        ``server`` is the address of what stands in front of it, if anything does.
        """
        access_files.write_kubeconfig(
            path,
            server=server or self.server,
            token=access_files.token(self._pki / "tokens.csv", user),
            authority_pem=self.certificate.read_text(),
            user=user,
        )

    def node_name(self, number: int) -> str:
        """The name of a real node, which is also its address."""
        return addresses.node(number) if self.network else f"127.0.0.{number}"

    def pids(self) -> dict[str, int]:
        """The programs that run."""
        pids = {name: process.pid for name, process in self._processes.items()}
        running = {name: pid for name, pid in pids.items() if pid is not None}
        return running | (self.network.pids() if self.network else {})

    def names(self) -> list[str]:
        """The programs that it has while it is complete."""
        return [*NAMES, *([network.NAMES, network.HUB] if self.network else [])]

    def log(self, name: str, *, lines: int = 20) -> str:
        """The last lines of a program's log."""
        return self._processes[name].log_tail(lines)

    def _make_folder(self) -> None:
        for folder in (self.folder, self._pki, self.folder / "run"):
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        key, tokens = self._pki / "service-accounts.key", self._pki / "tokens.csv"
        if not tokens.exists():
            access_files.write_signing_key(key)
            numbers = range(1, access_files.MOST_NODES + 1)
            access_files.write_tokens(tokens, map(self.node_name, numbers))
        self.kubeconfig.unlink(missing_ok=True)  # its port is of another start

    def _start_network(self, between: network.Network) -> None:
        """All ports are chosen before: the network has to know them."""
        for name in _ALL_NAMES:
            self._port(name)
        between.start(self._ports.values())

    def _start_etcd(self) -> None:
        client = f"http://{_LISTEN}:{self._port(ETCD)}"
        peer = f"http://{_LISTEN}:{self._port('etcd-peer')}"
        options = [
            f"--data-dir={self.folder / 'etcd'}",
            "--name=partage",
            "--unsafe-no-fsync",
            "--heartbeat-interval=10",  # ms, as is the next: alone, it need not wait to be elected
            "--election-timeout=100",
            "--log-level=warn",
            f"--listen-client-urls={client}",
            f"--advertise-client-urls={client}",
            f"--listen-peer-urls={peer}",
            f"--initial-advertise-peer-urls={peer}",
            f"--initial-cluster=partage={peer}",
        ]
        process = self._processes[ETCD]
        self._run(process, "etcd", *options)
        process.wait_until(lambda: etcd.is_healthy(self._port(ETCD)))

    def _apiserver_options(self) -> list[str]:
        key = self._pki / "service-accounts.key"
        off = ["TaintNodesByCondition"] + ([] if self._controllers else ["ServiceAccount"])
        return [
            *(self._networked_options() if self.network else self._loopback_options()),
            f"--secure-port={self._port(APISERVER)}",
            f"--cert-dir={self._pki}",
            f"--etcd-servers=http://{_LISTEN}:{self._port(ETCD)}",
            f"--token-auth-file={self._pki / 'tokens.csv'}",
            f"--service-account-key-file={key}",
            f"--service-account-signing-key-file={key}",
            "--service-account-issuer=https://kubernetes.default.svc",
            f"--service-cluster-ip-range={addresses.SERVICES}",
            "--authorization-mode=Node,RBAC",
            "--allow-privileged=true",
            f"--disable-admission-plugins={','.join(off)}",
            "--etcd-compaction-interval=0",  # history is forgotten when a test says so
            "--delete-collection-workers=16",
            "--shutdown-watch-termination-grace-period=1s",  # else it waits a minute for watchers
            *self._options,
        ]

    def _loopback_options(self) -> list[str]:
        return [
            f"--bind-address={_LISTEN}",
            f"--advertise-address={_LISTEN}",
            "--endpoint-reconciler-type=none",  # loopback may not be an endpoint's address
        ]

    def _networked_options(self) -> list[str]:
        return [
            f"--bind-address={_EVERYWHERE}",
            f"--advertise-address={addresses.HUB}",
            "--enable-aggregator-routing=true",  # else it needs kube-proxy beside it
        ]

    def _start_controllers(self) -> None:
        options = [
            *self._serving(CONTROLLERS),
            f"--kubeconfig={self.kubeconfig}",
            "--leader-elect=false",
            f"--controllers={_CONTROLLERS}",
            f"--service-account-private-key-file={self._pki / 'service-accounts.key'}",
            f"--root-ca-file={self._pki / 'apiserver.crt'}",
            "--kube-api-qps=200",
            "--kube-api-burst=400",
        ]
        process = self._processes[CONTROLLERS]
        self._run(process, "kube-controller-manager", *options)
        process.wait_until(self._has_service_account)

    def _run(self, process: child_processes.Process, program: str, *options: str) -> None:
        prefix = self.network.inside() if self.network else []
        process.start([*prefix, self._programs / program, *options])

    def _serving(self, name: str) -> list[str]:
        port = self._port(name)
        return [f"--bind-address={_LISTEN}", f"--secure-port={port}", f"--cert-dir={self._pki}"]

    def _port(self, name: str) -> int:
        if name not in self._ports:
            self._ports[name] = child_processes.Port()
        return self._ports[name].number

    def _has_default_namespace(self) -> bool:
        return self._exists("Namespace", api.DEFAULT)

    def _has_service_account(self) -> bool:
        return self._exists("ServiceAccount", api.DEFAULT)

    def _exists(self, kind: str, name: str) -> bool:
        try:
            self.client.get(kind, name)
        except api.ApiError:
            return False
        return True
