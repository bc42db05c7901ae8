"""The S3 servers of a test run. All processes of the run share one Ceph; each has a moto of its own, which is small."""

import fcntl
import os
import subprocess
import sys
import time
import uuid
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.servers import ceph


class Server(NamedTuple):
    """A server and who owns the buckets there."""

    endpoint: str
    key: str
    secret: str
    folder: Path | None = None
    """Where Ceph's settings are, from which a second gateway can be started."""

    @property
    def options(self) -> dict[str, str]:
        """The storage options of the owner."""
        return {"key": self.key, "secret": self.secret, "endpoint_url": self.endpoint}

    def client(self):
        """Return boto3's client of the owner, to look at the server from outside and to make buckets."""
        import boto3

        names = {"aws_access_key_id": self.key, "aws_secret_access_key": self.secret, "region_name": "us-east-1"}
        return boto3.client("s3", endpoint_url=self.endpoint, **names)

    def new_bucket(self) -> str:
        """Make a bucket and return its name."""
        name = f"bucket-{uuid.uuid4().hex[:12]}"
        self.client().create_bucket(Bucket=name)
        return name


def begin_ceph(folder: Path) -> None:
    """Start the one Ceph of the test run, if no process has. `folder` is shared by the processes of the run."""
    folder.mkdir(exist_ok=True)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / "begun").exists():
            controller = os.getppid() if "PYTEST_XDIST_WORKER" in os.environ else os.getpid()
            command = [sys.executable, "-m", "tests.servers.ceph", str(folder), str(controller)]
            with (folder / "output").open("wb") as output:
                subprocess.Popen(
                    command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True
                )
            (folder / "begun").touch()


def ceph_in(folder: Path) -> Server:
    """Return the one Ceph of the test run, once it is ready. Skip the test if it cannot be started."""
    if why := ceph.why_not():
        pytest.skip(why)
    begin_ceph(folder)
    deadline = time.monotonic() + ceph.START_SECONDS
    while not (folder / ceph.READY).exists():
        if (folder / ceph.FAILED).exists():
            pytest.skip((folder / ceph.FAILED).read_text())
        if time.monotonic() > deadline:
            pytest.skip(f"Ceph's S3 server did not start: {(folder / 'output').read_text()[-500:]}")
        time.sleep(0.1)
    return Server((folder / ceph.READY).read_text(), *ceph.OWNER, folder)
