"""The machine on which a table was measured, without its name or paths."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
from pathlib import Path

import psutil

GIB = 1024**3


def describe() -> dict[str, str]:
    """Return cores, memory, processor, and the versions that matter."""
    import pyarrow as pa
    import pyspark

    return {
        "cores": str(psutil.cpu_count()),
        "memory": f"{psutil.virtual_memory().total / GIB:.0f} GiB",
        "processor": _processor(),
        "system": f"{platform.system()} {platform.release()}",
        "Python": platform.python_version(),
        "pyspark": pyspark.__version__,
        "pyarrow": pa.__version__,
        "Java": _java(),
    }


def _processor() -> str:
    info = Path("/proc/cpuinfo")
    if info.exists():
        for line in info.read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def _java() -> str:
    home = os.environ.get("JAVA_HOME")
    java = f"{home}/bin/java" if home else shutil.which("java")
    if not java:
        return "unknown"
    said = subprocess.run([java, "-version"], capture_output=True, text=True, check=False).stderr
    return said.partition('"')[2].partition('"')[0] or "unknown"
