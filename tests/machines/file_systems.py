"""The file systems that the hosts share, each served by programs on the hosts themselves."""

from __future__ import annotations

import shutil
import subprocess
import time
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from tests.machines.hosts import Host

MOUNT = "/run/shared"
"""Where each host has the file system."""
PATIENCE_S = 30
STOPPED_SERVER_S = 15.0


class FileSystem(Protocol):
    """A file system that hosts share."""

    name: str

    def start(self) -> None:
        """Start its servers. Raise `OSError` if that does not work."""

    def mount(self, host: Host) -> None:
        """Mount it in a host."""

    def serve(self, host: Host) -> None:
        """Start what a host serves, after it was killed and has booted."""

    def lose_server(self) -> None:
        """Kill a server, leave it away for a time, and start it again."""

    def stop_server(self) -> None:
        """Suspend a server for a time: it answers nothing, and no connection ends."""


def until_done(host: Host, *command: str) -> str:
    """Run a command until it succeeds."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        try:
            return host.run(*command)
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.1)


class Gluster:
    """GlusterFS: each host has a brick, and all bricks have every file."""

    PROGRAMS = ("glusterd", "gluster", "mount.glusterfs")
    PRIVATE = ("/run", "/var/log/glusterfs")
    OPTIONS = (("network.ping-timeout", "10"), ("server.tcp-user-timeout", "10"), ("server.keepalive-time", "5"))
    """With the defaults, locks of a host that is cut off keep the others waiting for 42 s."""

    def __init__(self, hosts: Sequence[Host], folder: Path) -> None:
        self.name, self._hosts, self._folder = "GlusterFS", hosts, folder

    def start(self) -> None:
        for host in self._hosts:
            self.serve(host)
        first, *others = self._hosts
        until_done(first, "gluster", "pool", "list")
        for host in others:
            first.run("gluster", "peer", "probe", host.address)
        deadline = time.monotonic() + PATIENCE_S
        while first.run("gluster", "pool", "list").count("Connected") < len(self._hosts):
            if time.monotonic() > deadline:
                raise OSError("GlusterFS: the hosts do not find each other")
            time.sleep(0.1)
        bricks = [f"{host.address}:{self._folder}/{host.name}/brick" for host in self._hosts]
        count = str(len(bricks))
        first.run("gluster", "--mode=script", "volume", "create", "log", "replica", count, *bricks, "force")
        for option, value in self.OPTIONS:
            first.run("gluster", "--mode=script", "volume", "set", "log", option, value)
        first.run("gluster", "--mode=script", "volume", "start", "log")

    def serve(self, host: Host) -> None:
        state = self._folder / host.name
        for each in (state / "glusterd", Path("/var/lib/glusterd")):
            each.mkdir(parents=True, exist_ok=True)
        host.run("mount", "--bind", str(state / "glusterd"), "/var/lib/glusterd")
        host.begin("glusterd", "--no-daemon", "--log-level", "WARNING", output=state / "glusterd.out")

    def mount(self, host: Host) -> None:
        host.run("mkdir", "-p", MOUNT)
        until_done(host, "mount", "-t", "glusterfs", f"{host.address}:/log", MOUNT)
        until_done(host, "stat", MOUNT)

    def lose_server(self) -> None:
        host = self._hosts[-1]
        host.run("pkill", "-KILL", "-x", "glusterfsd")
        time.sleep(STOPPED_SERVER_S)
        host.run("gluster", "--mode=script", "volume", "start", "log", "force")

    def stop_server(self) -> None:
        host = self._hosts[-1]
        host.run("pkill", "-STOP", "-x", "glusterfsd")
        time.sleep(STOPPED_SERVER_S)
        host.run("pkill", "-CONT", "-x", "glusterfsd")


_CEPH_CONF = """
[global]
fsid = {fsid}
mon host = [v2:{address}:3300/0]
auth cluster required = none
auth service required = none
auth client required = none
run dir = {folder}
log file = {folder}/$name.log
admin socket = {folder}/$name.asok
pid file = {folder}/$name.pid
osd objectstore = memstore
memstore device bytes = 4G
osd data = {folder}/osd
osd pool default size = 1
osd pool default min size = 1
osd pool default pg num = 4
osd pool default pg autoscale mode = off
osd crush chooseleaf type = 0
mon allow pool size one = true
mon data = {folder}/mon
mon data avail warn = 1
mon data avail crit = 0
mds data = {folder}/mds
paxos propose interval = 0.05
paxos min wait = 0.01
mds tick interval = 0.05
[mon]
public addr = {address}
[mds]
public addr = {address}
[osd]
public addr = {address}
cluster addr = {address}
[client]
client reconnect stale = true
run dir = /run
log file = /run/$name.log
admin socket = /run/$name.$pid.asok
pid file = /run/$name.$pid.pid
"""


class CephFS:
    """CephFS through ceph-fuse: a host of its own has monitor, metadata server and one OSD in memory."""

    PROGRAMS = ("ceph-mon", "ceph-osd", "ceph-mds", "ceph-fuse", "ceph", "monmaptool")
    PRIVATE = ("/run",)

    def __init__(self, server: Host, folder: Path) -> None:
        self.name, self._server, self._folder = "CephFS", server, folder
        self._conf = str(folder / "ceph.conf")
        self._metadata: subprocess.Popen[bytes] | None = None
        self._osd: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        folder, server, conf = self._folder, self._server, self._conf
        fsid, osd = str(uuid.uuid4()), str(uuid.uuid4())
        for each in ("osd", "mon", "mds"):
            (folder / each).mkdir(parents=True)
        Path(conf).write_text(_CEPH_CONF.format(fsid=fsid, address=server.address, folder=folder))
        monmap = str(folder / "monmap")
        server.run("monmaptool", "--create", "--fsid", fsid, "--addv", "a", f"[v2:{server.address}:3300/0]", monmap)
        shutil.rmtree(folder / "mon")
        server.run("ceph-mon", "-c", conf, "-i", "a", "--mkfs", "--monmap", monmap)
        server.begin("ceph-mon", "-c", conf, "-i", "a", "-f", output=folder / "mon.out")
        self._ceph("osd", "new", osd)
        server.run("ceph-osd", "-c", conf, "-i", "0", "--mkfs", "--osd-uuid", osd)
        self._osd = server.begin("ceph-osd", "-c", conf, "-i", "0", "-f", output=folder / "osd.out")
        self._begin_metadata()
        self._ceph("osd", "pool", "create", "metadata")
        self._ceph("osd", "pool", "create", "data")
        self._ceph("fs", "new", "log", "metadata", "data")

    def _begin_metadata(self) -> None:
        command = ("ceph-mds", "-c", self._conf, "-i", "a", "-f")
        self._metadata = self._server.begin(*command, output=self._folder / "mds.out")

    def _ceph(self, *words: str) -> str:
        return until_done(self._server, "ceph", "-c", self._conf, "--connect-timeout", "5", *words)

    def serve(self, host: Host) -> None:
        """Do nothing: the server is a host of its own."""

    def mount(self, host: Host) -> None:
        host.run("mkdir", "-p", MOUNT)
        until_done(host, "ceph-fuse", "-c", self._conf, "--client-mountpoint=/", MOUNT)

    def lose_server(self) -> None:
        self._server.run("pkill", "-KILL", "-x", "ceph-mds")
        time.sleep(STOPPED_SERVER_S)
        self._begin_metadata()

    def stop_server(self) -> None:
        self._server.run("pkill", "-STOP", "-x", "ceph-osd")
        time.sleep(STOPPED_SERVER_S)
        self._server.run("pkill", "-CONT", "-x", "ceph-osd")
