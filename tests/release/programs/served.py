"""With an extra that serves something of a cluster: COMMAND serves at PATH what has TEXT in it."""

import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from pathlib import Path

served, path, text = sys.argv[1:]
log = f"{tempfile.mkdtemp()}/log"
command = Path(sys.executable).with_name("pyspark-log")
subprocess.run([command, "topics", "create", "cities", "--path", log], check=True)
with socket.create_server(("127.0.0.1", 0)) as free:
    address = f"127.0.0.1:{free.getsockname()[1]}"
server = subprocess.Popen([command, served, "--listen", address, "--path", log])
try:
    until = time.monotonic() + 60
    while True:
        try:
            page = urllib.request.urlopen(f"http://{address}{path}").read().decode()
            break
        except urllib.error.URLError:
            assert server.poll() is None
            assert time.monotonic() < until
            time.sleep(0.1)
finally:
    server.terminate()
    server.wait()
assert text in page, page
