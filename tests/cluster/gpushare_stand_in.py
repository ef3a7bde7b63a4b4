"""gpushare's two programs, as far as a cluster can tell: its extender and its device plugin.

Run in a pod of Partage's image, which has gRPC: ``gpushare_stand_in.py extender`` or ``plugin
--memory-unit=GiB``. Nothing of gpushare's code is in here. What it does is what gpushare's does
when one reads it: verbs and texts of the extender, its choice of a card, the order of its two
writes; of the plugin the socket, the IDs, the list, the search for a pod by its size and its time,
the variables, and the write of ASSIGNED. It knows no more than the annotations, and fences nothing.
"""

from __future__ import annotations

import json
import os
import ssl
import sys
import threading
import time
import urllib.request
from concurrent import futures
from http import server
from pathlib import Path
from typing import Any

import grpc

from partage.devices import nvml
from partage.kubelet.wire import device_plugin_pb2 as messages

MEMORY, COUNT = "aliyun.com/gpu-mem", "aliyun.com/gpu-count"
PREFIX = "ALIYUN_COM_GPU_MEM_"
INDEX, CARD, POD = f"{PREFIX}IDX", f"{PREFIX}DEV", f"{PREFIX}POD"
ASSIGNED, ASSUMED = f"{PREFIX}ASSIGNED", f"{PREFIX}ASSUME_TIME"
STRATEGIC = "application/strategic-merge-patch+json"
PLUGINS = Path("/var/lib/kubelet/device-plugins")
SOCKET = "aliyungpushare.sock"
ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")

Object = dict[str, Any]


class Cluster:
    """The API server, by the pod's own account."""

    def __init__(self) -> None:
        host, port = (os.environ[f"KUBERNETES_SERVICE_{part}"] for part in ("HOST", "PORT"))
        self._server = f"https://{host}:{port}"
        self._trust = ssl.create_default_context(cafile=str(ACCOUNT / "ca.crt"))

    def call(self, method: str, path: str, body: Object | None = None, kind: str = "") -> Object:
        """One request."""
        token = (ACCOUNT / "token").read_text()
        headers = {
            "Authorization": f"Bearer {token}",
            "Content-Type": kind or "application/json",
        }
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(
            f"{self._server}{path}", data=data, headers=headers, method=method
        )
        with urllib.request.urlopen(request, context=self._trust, timeout=30) as answer:
            read: Object = json.load(answer)
        return read

    def annotate(self, pod: Object, annotations: dict[str, str]) -> None:
        """Write on a pod, as gpushare does."""
        self.call("PATCH", _path(pod), {"metadata": {"annotations": annotations}}, STRATEGIC)


class Extender:
    """Filter and bind."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._lock = threading.Lock()

    def filter(self, arguments: Object) -> Object:
        """The nodes with a card that has enough."""
        pod, names = _field(arguments, "pod"), _field(arguments, "nodenames")
        amount, fits, failed = _asked(pod), [], {}
        for name in names:
            free = self._free(name)
            if not free:
                failed[name] = f"The node {name} is not for GPU share, need skip"
            elif max(free) >= amount:
                fits.append(name)
            else:
                failed[name] = "Insufficient GPU Memory in one device"
        return {"Nodes": None, "NodeNames": fits, "FailedNodes": failed, "Error": ""}

    def bind(self, arguments: Object) -> Object:
        """Choose the card with the least free memory that is enough; write, then bind."""
        fields = ("podname", "podnamespace", "poduid", "node")
        name, space, uid, node = (_field(arguments, field) for field in fields)
        with self._lock:
            pod = self._cluster.call("GET", f"/api/v1/namespaces/{space}/pods/{name}")
            if pod["metadata"]["uid"] != uid:
                return {"Error": f"The pod {name} in ns {space}'s uid is another"}
            amount, free = _asked(pod), self._free(node)
            enough = [(left, i) for i, left in enumerate(free) if left >= amount]
            if not enough or not amount:
                return {"Error": f"The node {node} can't place the pod {name} in ns {space}"}
            total, _ = self._capacity(node)
            self._cluster.annotate(
                pod,
                {
                    INDEX: str(min(enough)[1]),
                    CARD: str(total // len(free)),
                    POD: str(amount),
                    ASSIGNED: "false",
                    ASSUMED: str(time.time_ns()),
                },
            )
            binding = {
                "apiVersion": "v1",
                "kind": "Binding",
                "metadata": {"name": name, "uid": uid},
                "target": {"kind": "Node", "name": node},
            }
            self._cluster.call("POST", f"/api/v1/namespaces/{space}/pods/{name}/binding", binding)
            return {"Error": ""}

    def _capacity(self, node: str) -> tuple[int, int]:
        capacity = self._cluster.call("GET", f"/api/v1/nodes/{node}")["status"]["capacity"]
        return int(capacity.get(MEMORY, 0)), int(capacity.get(COUNT, 0))

    def _free(self, node: str) -> list[int]:
        total, count = self._capacity(node)
        free = [total // count] * count if count else []
        path = f"/api/v1/pods?fieldSelector=spec.nodeName%3D{node}"
        for pod in self._cluster.call("GET", path)["items"]:
            written = pod["metadata"].get("annotations") or {}
            ended = pod["status"].get("phase") in ("Succeeded", "Failed")
            if INDEX in written and not ended:
                free[int(written[INDEX])] -= int(written[POD])
        return free


class Plugin:
    """The device plugin of one node."""

    def __init__(self, cluster: Cluster, unit: str) -> None:
        self._cluster = cluster
        self._node = os.environ["NODE_NAME"]
        self._lock = threading.Lock()
        with nvml.Nvml() as driver:
            devices = driver.devices()
        self._uuids = [str(device.uuid) for device in devices]
        mib = int(devices[0].memory_mib or 0)
        self._unit, self._card = unit, mib if unit == "MiB" else mib // 1024

    def serve(self) -> None:
        """Until it is killed; it registers again with every kubelet that comes."""
        self._tell_count()
        while True:
            kubelet = PLUGINS / "kubelet.sock"
            (PLUGINS / SOCKET).unlink(missing_ok=True)
            served = grpc.server(futures.ThreadPoolExecutor(8))
            served.add_generic_rpc_handlers((self._methods(),))
            served.add_insecure_port(f"unix:{PLUGINS / SOCKET}")
            served.start()
            born = kubelet.stat().st_ino
            self._register(kubelet)
            while kubelet.exists() and kubelet.stat().st_ino == born:
                time.sleep(0.2)
            served.stop(0)
            while not kubelet.exists():
                time.sleep(0.2)

    def allocate(self, request: Any, _context: Any) -> Any:
        """The oldest assumed pod of this size is taken for the one that starts."""
        amount = sum(len(one.devices_ids) for one in request.container_requests)
        with self._lock:
            pod = self._candidate(amount)
            index = int(pod["metadata"]["annotations"][INDEX]) if pod else -1
            visible = (
                f"no-gpu-has-{amount}{self._unit}-to-run" if pod is None else self._uuids[index]
            )
            if pod is not None:
                written = {ASSIGNED: "true", ASSUMED: str(time.time_ns())}
                self._cluster.annotate(pod, written)
        responses = [
            messages.ContainerAllocateResponse(
                envs={
                    "NVIDIA_VISIBLE_DEVICES": visible,
                    INDEX: str(index),
                    POD: str(amount),
                    f"{PREFIX}CONTAINER": str(len(one.devices_ids)),
                    CARD: str(self._card),
                }
            )
            for one in request.container_requests
        ]
        return messages.AllocateResponse(container_responses=responses)

    def _candidate(self, amount: int) -> Object | None:
        selector = f"spec.nodeName%3D{self._node}%2Cstatus.phase%3DPending"
        pods = self._cluster.call("GET", f"/api/v1/pods?fieldSelector={selector}")["items"]

        def assumed(pod: Object) -> int:
            return int(pod["metadata"]["annotations"][ASSUMED])

        waiting = [
            pod
            for pod in pods
            if (pod["metadata"].get("annotations") or {}).get(ASSIGNED) == "false"
        ]
        return next((p for p in sorted(waiting, key=assumed) if _asked(p) == amount), None)

    def _list_and_watch(self, _request: Any, context: Any) -> Any:
        devices = [
            messages.Device(ID=f"{uuid}-_-{j}", health="Healthy")
            for uuid in self._uuids
            for j in range(self._card)
        ]
        yield messages.ListAndWatchResponse(devices=devices)
        while context.is_active():
            time.sleep(0.2)

    def _tell_count(self) -> None:
        count = {COUNT: str(len(self._uuids))}
        status = {"status": {"capacity": count, "allocatable": count}}
        self._cluster.call("PATCH", f"/api/v1/nodes/{self._node}/status", status, STRATEGIC)

    def _register(self, kubelet: Path) -> None:
        request = messages.RegisterRequest(version="v1beta1", endpoint=SOCKET, resource_name=MEMORY)
        with grpc.insecure_channel(
            f"unix:{kubelet}", options=(("grpc.default_authority", "localhost"),)
        ) as channel:
            call = channel.unary_unary(
                "/v1beta1.Registration/Register",
                request_serializer=messages.RegisterRequest.SerializeToString,
                response_deserializer=messages.Empty.FromString,
            )
            call(request, timeout=15)

    def _methods(self) -> grpc.GenericRpcHandler:
        return grpc.method_handlers_generic_handler(
            "v1beta1.DevicePlugin",
            {
                "GetDevicePluginOptions": grpc.unary_unary_rpc_method_handler(
                    lambda _request, _context: messages.DevicePluginOptions(),
                    messages.Empty.FromString,
                    messages.DevicePluginOptions.SerializeToString,
                ),
                "ListAndWatch": grpc.unary_stream_rpc_method_handler(
                    self._list_and_watch,
                    messages.Empty.FromString,
                    messages.ListAndWatchResponse.SerializeToString,
                ),
                "Allocate": grpc.unary_unary_rpc_method_handler(
                    self.allocate,
                    messages.AllocateRequest.FromString,
                    messages.AllocateResponse.SerializeToString,
                ),
            },
        )


class _Verbs(server.BaseHTTPRequestHandler):
    extender: Extender

    def do_POST(self) -> None:
        """Filter always answers 200, and bind 500 if it failed."""
        arguments = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        binds = self.path.endswith("/bind")
        work = self.extender.bind if binds else self.extender.filter
        answer = work(arguments)
        body = json.dumps(answer).encode()
        self.send_response(500 if binds and answer["Error"] else 200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


def _field(arguments: Object, name: str) -> Any:
    """Go reads names in any case."""
    return next(value for key, value in arguments.items() if key.lower() == name)


def _asked(pod: Object) -> int:
    limits = [c.get("resources", {}).get("limits", {}) for c in pod["spec"]["containers"]]
    return sum(int(limit.get(MEMORY, 0)) for limit in limits)


def _path(pod: Object) -> str:
    meta = pod["metadata"]
    return f"/api/v1/namespaces/{meta['namespace']}/pods/{meta['name']}"


def main() -> None:
    """One of the two, for ever."""
    role, *flags = sys.argv[1:]
    cluster = Cluster()
    if role == "plugin":
        Plugin(cluster, flags[0].partition("=")[2]).serve()
    _Verbs.extender = Extender(cluster)
    address = ("", int(os.environ["PORT"]))
    server.ThreadingHTTPServer(address, _Verbs).serve_forever()


if __name__ == "__main__":
    main()
