"""Ceph's S3 server for tests: a monitor, one OSD in memory and the RADOS gateway, on loopback, in their own folder.

    python -m tests.servers.ceph FOLDER PID     serves until process PID ends; FOLDER/ready then names the endpoint

Debian's packages: radosgw ceph-mon ceph-osd ceph-common (`scripts/install-ceph`).
"""

import shutil
import signal
import socket
import subprocess
import sys
import time
import uuid
from pathlib import Path

PROGRAMS = ("ceph-mon", "ceph-osd", "radosgw", "radosgw-admin", "monmaptool", "ceph")
OWNER = ("ownerkey", "canary-b41d7c52")
"""The access key of the user that owns the buckets, and the secret, which tests look for where it must not be."""
GUEST = ("guestkey", "canary-guest-9c0e")
"""Those of a user that has no rights but those that a bucket's policy grants to `arn:aws:iam:::user/guest`."""
READY = "ready"
FAILED = "failed"
START_SECONDS = 120
_CONF = """
[global]
fsid = {fsid}
mon host = [v2:127.0.0.1:{mon}/0]
public addr = 127.0.0.1
cluster addr = 127.0.0.1
ms bind port min = 20000
ms bind port max = 59000
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
osd pool default pg autoscale mode = off
osd crush chooseleaf type = 0
osd max object name len = 2048
mon allow pool size one = true
mon data = {folder}/mon
mon data avail warn = 1
mon data avail crit = 0
mon max pg per osd = 1000
paxos propose interval = 0.05
paxos min wait = 0.01
osd heartbeat grace = 3600
debug ms = 0/0
rgw data = {folder}/rgw
rgw frontends = beast endpoint=127.0.0.1:{rgw} tcp_nodelay=1
rgw enable gc threads = false
rgw enable lc threads = false
rgw enable quota threads = false
rgw run sync thread = false
rgw dynamic resharding = false
rgw override bucket index max shards = 1
rgw thread pool size = 64
"""


def why_not() -> str:
    """Return why the server cannot be started here, or "" if it can."""
    missing = [each for each in PROGRAMS if shutil.which(each) is None]
    return f"Ceph's S3 server is not installed: no {', '.join(missing)} (run scripts/install-ceph)" if missing else ""


def free_port() -> int:
    """Return a port that no program uses now."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def serve(folder: Path, parent: int) -> None:
    """Start the servers, say that they are ready, and end them when process `parent` has ended."""
    processes: list[subprocess.Popen[bytes]] = []

    def run(*command: str) -> str:
        return subprocess.run(command, cwd=folder, check=True, capture_output=True, text=True, timeout=60).stdout

    def start(*command: str) -> None:
        with (folder / f"{Path(command[0]).name}.out").open("wb") as output:
            processes.append(
                subprocess.Popen(command, cwd=folder, stdin=subprocess.DEVNULL, stdout=output, stderr=output)
            )

    try:
        mon, rgw, fsid = free_port(), free_port(), str(uuid.uuid4())
        conf = str(folder / "ceph.conf")
        (folder / "ceph.conf").write_text(_CONF.format(fsid=fsid, mon=mon, rgw=rgw, folder=folder))
        monmap = str(folder / "monmap")
        run("monmaptool", "--create", "--fsid", fsid, "--addv", "a", f"[v2:127.0.0.1:{mon}/0]", monmap)
        (folder / "osd").mkdir()
        run("ceph-mon", "-c", conf, "-i", "a", "--mkfs", "--monmap", monmap)
        start("ceph-mon", "-c", conf, "-i", "a", "-f")
        osd = str(uuid.uuid4())
        run("ceph", "-c", conf, "osd", "new", osd)
        run("ceph-osd", "-c", conf, "-i", "0", "--mkfs", "--osd-uuid", osd)
        start("ceph-osd", "-c", conf, "-i", "0", "-f")
        start("radosgw", "-c", conf, "-n", "client.rgw", "-f")
        await_port(rgw, processes)
        key, secret = OWNER
        keys = (f"--access-key={key}", f"--secret-key={secret}", "--caps=users=*")
        run("radosgw-admin", "-c", conf, "user", "create", "--uid=owner", "--display-name=owner", *keys)
        key, secret = GUEST
        keys = (f"--access-key={key}", f"--secret-key={secret}")
        run("radosgw-admin", "-c", conf, "user", "create", "--uid=guest", "--display-name=guest", *keys)
        (folder / f"{READY}.new").write_text(f"http://127.0.0.1:{rgw}")
        (folder / f"{READY}.new").rename(folder / READY)
        while Path(f"/proc/{parent}").exists() and not any(each.poll() is not None for each in processes):
            time.sleep(0.2)
    except (OSError, subprocess.SubprocessError) as error:
        output = getattr(error, "stderr", "") or ""
        (folder / FAILED).write_text(f"Ceph's S3 server cannot be started here: {error} {output[-500:]}")
    finally:
        for each in reversed(processes):
            each.kill()
        for each in processes:
            each.wait()
        shutil.rmtree(folder / "osd", ignore_errors=True)
        shutil.rmtree(folder / "mon", ignore_errors=True)


def await_port(port: int, processes: list[subprocess.Popen[bytes]]) -> None:
    """Wait until a port is open. Raise `OSError` if one of the processes has ended."""
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline:
        for each in processes:
            if each.poll() is not None:
                raise OSError(f"{each.args} ended with {each.returncode}")
        with socket.socket() as asked:
            if asked.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.1)
    raise OSError(f"port {port} did not open within {START_SECONDS} s")


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    serve(Path(sys.argv[1]), int(sys.argv[2]))
