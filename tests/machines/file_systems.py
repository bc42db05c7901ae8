"""What the hosts share: two file systems and a bucket, each served by programs on the hosts themselves."""

from __future__ import annotations

import contextlib
import json
import sys
import time
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from tests.machines.hosts import Host

DISK = "disk"
"""The folder of a story that has little space, for what a server stores."""
MOUNT = "/run/shared"
"""Where each host has the file system."""
FILLED_AT_ONCE = 4096
PATIENCE_S = 90
STOPPED_SERVER_S = 15.0


class Shared(Protocol):
    """A file system or a bucket that hosts share."""

    name: str
    root: str
    """The address of the log, or the addresses of the nodes of a log that has one on each host."""
    checkpoint: str
    """Where Spark stores its checkpoint."""
    client: str
    """The program that mounts it in a host, as a pattern of `pkill`; "" for a bucket."""

    def start(self) -> None:
        """Start its servers. Raise `OSError` if that does not work."""

    def mount(self, host: Host) -> None:
        """Make it usable in a host."""

    def serve(self, host: Host) -> None:
        """Start what a host serves, after it was killed and has booted."""

    def lose_server(self) -> None:
        """Kill a server, leave it away for a time, and start it again."""

    def stop_server(self) -> None:
        """Suspend a server for a time: it answers nothing, and no connection ends."""

    def fill(self, *, is_full: bool) -> None:
        """Let it have no space left, or space again."""


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

    def __init__(self, hosts: Sequence[Host], server: Host, folder: Path) -> None:
        del server
        self.name, self._hosts, self._folder = "GlusterFS", hosts, folder
        self.root, self.checkpoint = f"{MOUNT}/log", f"{MOUNT}/checkpoint"
        self.client = f"^/usr/sbin/glusterfs .*{MOUNT}$"

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
        self._create()

    def _create(self) -> None:
        self._volume("log", self._hosts)

    def _volume(self, name: str, hosts: Sequence[Host]) -> None:
        """Begin a volume with a copy on each of some hosts."""
        first, script = self._hosts[0], ("gluster", "--mode=script", "volume")
        bricks = [f"{host.address}:{self._folder}/{DISK}/{host.name}" for host in hosts]
        copies = ("replica", str(len(bricks))) if len(bricks) > 1 else ()
        until_done(first, *script, "create", name, *copies, *bricks, "force")
        for option, value in self.OPTIONS:
            first.run(*script, "set", name, option, value)
        first.run(*script, "start", name)

    def serve(self, host: Host) -> None:
        state = self._folder / host.name
        for each in (state / "glusterd", Path("/var/lib/glusterd")):
            each.mkdir(parents=True, exist_ok=True)
        host.run("mount", "--bind", str(state / "glusterd"), "/var/lib/glusterd")
        host.begin("glusterd", "--no-daemon", "--log-level", "WARNING", output=state / "glusterd.out")

    def mount(self, host: Host) -> None:
        self._mount(host, "log", MOUNT)

    def _mount(self, host: Host, volume: str, folder: str) -> None:
        host.run("mkdir", "-p", folder)
        until_done(host, "mount", "-t", "glusterfs", f"{host.address}:/{volume}", folder)
        until_done(host, "mkdir", "-p", f"{folder}/log")

    def lose_server(self) -> None:
        self._lose_brick("log")

    def _lose_brick(self, volume: str) -> None:
        host = self._hosts[-1]
        host.run("pkill", "-KILL", "-x", "glusterfsd")
        time.sleep(STOPPED_SERVER_S)
        host.run("gluster", "--mode=script", "volume", "start", volume, "force")

    def stop_server(self) -> None:
        host = self._hosts[-1]
        host.run("pkill", "-STOP", "-x", "glusterfsd")
        time.sleep(STOPPED_SERVER_S)
        host.run("pkill", "-CONT", "-x", "glusterfsd")

    def fill(self, *, is_full: bool) -> None:
        filler = self._folder / DISK / "filler"
        if not is_full:
            filler.unlink()
            return
        with filler.open("wb", buffering=0) as file, contextlib.suppress(OSError):
            while True:
                file.write(bytes(FILLED_AT_ONCE))


class GlusterVolumes(Gluster):
    """GlusterFS with a volume of its own for each node: one copy, on the host of that number.

    Spark's checkpoint is on the disk of the driver's host, which survives the host.
    """

    def __init__(self, hosts: Sequence[Host], server: Host, folder: Path) -> None:
        super().__init__(hosts, server, folder)
        self.name, self.checkpoint = "GlusterFS, a volume a node", f"{folder}/checkpoint"
        self.root = ",".join(f"{MOUNT}/{host.name}/log" for host in hosts)
        self.client = f"^/usr/sbin/glusterfs .*{MOUNT}/"

    def _create(self) -> None:
        for host in self._hosts:
            self._volume(host.name, [host])

    def mount(self, host: Host) -> None:
        for each in self._hosts:
            self._mount(host, each.name, f"{MOUNT}/{each.name}")

    def lose_server(self) -> None:
        self._lose_brick(self._hosts[-1].name)


_CEPH_CONF = """
[global]
fsid = {fsid}
mon host = [v2:{address}:3300/0]
auth cluster required = none
auth service required = none
auth client required = none
ms mon client mode = crc
run dir = {folder}
log file = {folder}/$name.log
admin socket = {folder}/$name.asok
pid file = {folder}/$name.pid
osd objectstore = memstore
memstore device bytes = 4G
osd data = {folder}/osd
osd pool default size = 1
osd pool default min size = 1
osd pool default pg num = 2
osd pool default pgp num = 2
mon max pg per osd = 1000
osd max object name len = 2048
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
[client.rgw]
rgw data = {folder}/rgw
rgw frontends = beast endpoint={address}:7480 tcp_nodelay=1
rgw enable gc threads = false
rgw enable lc threads = false
rgw enable quota threads = false
rgw run sync thread = false
rgw dynamic resharding = false
rgw override bucket index max shards = 1
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


class _Ceph:
    """A host of its own with a monitor and one OSD in memory."""

    PRIVATE: tuple[str, ...] = ("/run",)

    def __init__(self, hosts: Sequence[Host], server: Host, folder: Path) -> None:
        del hosts
        self._server, self._folder = server, folder
        self._conf = str(folder / "ceph.conf")

    def start(self) -> None:
        folder, server, conf = self._folder, self._server, self._conf
        fsid, osd = str(uuid.uuid4()), str(uuid.uuid4())
        for each in ("osd", "mds"):
            (folder / each).mkdir(parents=True)
        Path(conf).write_text(_CEPH_CONF.format(fsid=fsid, address=server.address, folder=folder))
        monmap = str(folder / "monmap")
        server.run("monmaptool", "--create", "--fsid", fsid, "--addv", "a", f"[v2:{server.address}:3300/0]", monmap)
        server.run("ceph-mon", "-c", conf, "-i", "a", "--mkfs", "--monmap", monmap)
        self._begin("ceph-mon", "-i", "a")
        self._ceph("osd", "new", osd)
        server.run("ceph-osd", "-c", conf, "-i", "0", "--mkfs", "--osd-uuid", osd)
        self._begin("ceph-osd", "-i", "0")

    def _begin(self, program: str, *words: str) -> None:
        self._server.begin(program, "-c", self._conf, "-f", *words, output=self._folder / f"{program}.out")

    def _ceph(self, *words: str) -> str:
        return until_done(self._server, "ceph", "-c", self._conf, "--connect-timeout", "5", *words)

    def serve(self, host: Host) -> None:
        """Do nothing: the server is a host of its own."""

    def _restart(self, program: str, *words: str) -> None:
        self._server.run("pkill", "-KILL", "-x", program)
        time.sleep(STOPPED_SERVER_S)
        self._begin(program, *words)

    def stop_server(self) -> None:
        self._server.run("pkill", "-STOP", "-x", "ceph-osd")
        time.sleep(STOPPED_SERVER_S)
        self._server.run("pkill", "-CONT", "-x", "ceph-osd")


class CephFS(_Ceph):
    """CephFS through ceph-fuse."""

    PROGRAMS = ("ceph-mon", "ceph-osd", "ceph-mds", "ceph-fuse", "ceph", "monmaptool")

    def __init__(self, hosts: Sequence[Host], server: Host, folder: Path) -> None:
        super().__init__(hosts, server, folder)
        self.name, self.root, self.checkpoint = "CephFS", f"{MOUNT}/log", f"{MOUNT}/checkpoint"
        self.client = "^ceph-fuse "
        self._mounted = server

    def start(self) -> None:
        super().start()
        self._begin("ceph-mds", "-i", "a")
        self._ceph("osd", "pool", "create", "metadata")
        self._ceph("osd", "pool", "create", "data")
        self._ceph("fs", "new", "log", "metadata", "data")

    def mount(self, host: Host) -> None:
        host.run("mkdir", "-p", MOUNT)
        until_done(host, "ceph-fuse", "-c", self._conf, "--client-mountpoint=/", MOUNT)
        self._mounted = host
        until_done(host, "mkdir", "-p", self.root)

    def lose_server(self) -> None:
        self._restart("ceph-mds", "-i", "a")

    def fill(self, *, is_full: bool) -> None:
        quota = b"1" if is_full else b"0"
        setting = f"import os; os.setxattr({MOUNT!r}, 'ceph.quota.max_bytes', {quota!r})"
        self._mounted.run(sys.executable, "-c", setting)


class Bucket(_Ceph):
    """A bucket in Ceph's S3 server. Spark's checkpoint is on the disk of the driver's host, which survives the host."""

    PROGRAMS = ("ceph-mon", "ceph-osd", "radosgw", "radosgw-admin", "ceph", "monmaptool")
    KEYS = ("hostkey", "host-secret-93c1")

    def __init__(self, hosts: Sequence[Host], server: Host, folder: Path) -> None:
        super().__init__(hosts, server, folder)
        self.name, self.root, self.checkpoint = "S3", "s3://shared/log", f"{folder}/checkpoint"
        self.client = ""
        self._options = {"key": self.KEYS[0], "secret": self.KEYS[1], "endpoint_url": f"http://{server.address}:7480"}

    def start(self) -> None:
        super().start()
        self._begin("radosgw", "-n", "client.rgw")
        key, secret = self.KEYS
        user = ("--uid=hosts", "--display-name=hosts", f"--access-key={key}", f"--secret-key={secret}")
        until_done(self._server, "radosgw-admin", "-c", self._conf, "user", "create", *user)
        self._server.environment["PYSPARK_LOG_STORAGE_OPTIONS"] = json.dumps(self._options)
        create = f"import s3fs; s3fs.S3FileSystem(**{self._options!r}).mkdir('shared')"
        until_done(self._server, sys.executable, "-c", create)

    def mount(self, host: Host) -> None:
        host.environment["PYSPARK_LOG_STORAGE_OPTIONS"] = json.dumps(self._options)

    def lose_server(self) -> None:
        self._restart("radosgw", "-n", "client.rgw")

    def fill(self, *, is_full: bool) -> None:
        quota = ("radosgw-admin", "-c", self._conf, "quota")
        scope = ("--quota-scope=user", "--uid=hosts")
        self._server.run(*quota, "set", *scope, "--max-size=1" if is_full else "--max-size=-1")
        self._server.run(*quota, "enable" if is_full else "disable", *scope)


Kind = type[Gluster | CephFS | Bucket]
KINDS: dict[str, Kind] = {"gluster": Gluster, "volumes": GlusterVolumes, "ceph": CephFS, "s3": Bucket}
