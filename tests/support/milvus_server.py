"""The standalone Milvus server of the package `milvus`, on free ports of this machine, with its data in a folder.

As a script it starts a server and leaves it running: `python milvus_server.py FOLDER BINARIES PORT` (0 is any free
port) prints the port and the process id once the server answers. The binaries are unpacked once into a folder that
servers share.
"""

import fcntl
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path

MISSING = "needs the server of the package milvus and the client pymilvus: pip install milvus pymilvus"
# Intervals in ms at which Milvus looks for what is new, and the seconds until a killed server is forgotten (else 30):
# tests wait for these more than for anything else.
QUICKER = {
    "proxy.timeTickInterval": 20,
    "queryCoord.checkInterval": 100,
    "queryCoord.distPullInterval": 100,
    "common.session.ttl": 3,
}
PARTS = ("rootCoord", "proxy", "queryCoord", "queryNode", "indexCoord", "indexNode", "dataCoord", "dataNode")


def is_installed():
    """Whether server and client are there; the server exists for Linux and macOS."""
    return all(find_spec(name) is not None for name in ("milvus", "pymilvus"))


class MilvusProcess:
    """A running server."""

    def __init__(self, folder, binaries, port=0):
        command = [sys.executable, __file__, str(folder), str(binaries), str(port)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=180, check=False)
        if done.returncode:
            raise RuntimeError(f"Milvus did not start: {done.stderr[-2000:]}")
        self.folder, self.binaries = folder, binaries
        self.port, self.pid = json.loads(done.stdout.splitlines()[-1])

    def kill(self):
        """End the server as a power failure would."""
        kill(self.pid)

    def again(self):
        """A new server with the same data at the same port."""
        return MilvusProcess(self.folder, self.binaries, self.port)


@contextmanager
def shared_server(folder, binaries):
    """The server that all processes of a test session share; the first one starts it, and the last one ends it."""
    state = folder / "milvus.json"
    with _alone(folder):
        if state.exists():
            port, pid, users = json.loads(state.read_text())
        else:
            server = MilvusProcess(folder / "milvus", binaries)
            port, pid, users = server.port, server.pid, 0
        state.write_text(json.dumps([port, pid, users + 1]))
    try:
        yield port
    finally:
        with _alone(folder):
            port, pid, users = json.loads(state.read_text())
            state.write_text(json.dumps([port, pid, users - 1]))
            if users == 1:
                kill(pid)
                state.unlink()
                shutil.rmtree(folder / "milvus")


@contextmanager
def _alone(folder):
    with (folder / "milvus.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def kill(pid):
    """Kill a server, and wait until it is gone."""
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
    for _ in range(200):
        state = Path(f"/proc/{pid}/stat")
        if not state.exists() or state.read_text().rpartition(")")[2].split()[0] == "Z":
            return
        time.sleep(0.05)


def start(folder, binaries, port):
    """Start a server that outlives this process; returns its port and its process id."""
    from milvus import MilvusServer

    binaries.mkdir(parents=True, exist_ok=True)
    folder.mkdir(parents=True, exist_ok=True)
    if not (folder / "bin").exists():
        (folder / "bin").symlink_to(binaries)
    server = MilvusServer(wait_for_started=False)
    server.set_base_dir(str(folder))
    if port:
        server.config.configs["proxy_port"] = port
    for part in PARTS:
        server.config.set(f"{part}.ip", "127.0.0.1")
    for name, value in QUICKER.items():
        server.config.extra_configs[name] = value
    server.config.template_text = server.config.template_text.replace(
        "\n  use:\n", f"\n  config:\n    path: {_etcd_settings(folder)}\n  use:\n", 1
    )
    server.start()
    process, server.server_proc = server.server_proc, None
    health = f"http://127.0.0.1:{server.webservice_port}/healthz"
    for _ in range(1200):
        if process.poll() is not None:
            raise SystemExit((folder / "logs" / "milvus-stderr.log").read_text()[:3000])
        with suppress(OSError), urllib.request.urlopen(health, timeout=10) as answer:
            if b"OK" in answer.read():
                return server.listen_port, process.pid
        time.sleep(0.1)
    process.kill()
    raise SystemExit("it did not become healthy")


def _etcd_settings(folder):
    """Settings of the etcd inside, which would otherwise take ports that are always the same."""
    client, peer = (f"http://127.0.0.1:{free_port()}" for _ in range(2))
    settings = {
        "data-dir": str(folder / "data" / "etcd.data"),
        "log-level": "error",
        "listen-client-urls": client,
        "advertise-client-urls": client,
        "listen-peer-urls": peer,
        "initial-advertise-peer-urls": peer,
        "initial-cluster": f"default={peer}",
    }
    file = folder / "etcd.json"  # JSON is YAML
    file.write_text(json.dumps(settings))
    return file


def free_port():
    """A port of this machine that nobody uses now."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


if __name__ == "__main__":
    answer = start(Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]))
    sys.stdout.write(json.dumps(answer))
    sys.stdout.flush()
    os._exit(0)  # without the end of MilvusServer, which would stop the server
