"""Delta Lake for tests: its jars from Maven, and the Spark that they are for, beside the installed one.

Delta's newest runtime is for Spark 4.2. That PySpark lies in a folder of its own under `build/`; programs that have the
folder first in PYTHONPATH use it with all other libraries of this environment.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

from tests.support.java import BUILD, JavaUnavailable, classpath, locked

DELTA = "io.delta:delta-spark_4.2_2.13:4.4.0"
PYSPARK = "pyspark==4.2.*"
INSTALL_TIMEOUT_S = 600


def delta_jars() -> str:
    """For the setting `spark.jars`: without the libraries that Spark has itself."""
    return ",".join(jar for jar in classpath(DELTA).split(":") if Path(jar).name.startswith("delta-"))


def delta_pyspark() -> Path:
    """The folder of the PySpark that Delta works on, installed once; JavaUnavailable when it cannot be had."""
    folder = BUILD / "python" / "pyspark-4.2"
    with locked(BUILD / "python" / "lock"):
        if (folder / "complete").exists():
            return folder
        shutil.rmtree(folder, ignore_errors=True)
        command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", str(folder), PYSPARK]
        try:
            subprocess.run(command, check=True, capture_output=True, text=True, timeout=INSTALL_TIMEOUT_S)
        except subprocess.SubprocessError as error:
            raise JavaUnavailable(f"{PYSPARK} cannot be installed: {error}") from error
        (folder / "complete").touch()
    return folder


def delta_environment() -> dict[str, str]:
    """The environment of a program that uses that PySpark, and this tree."""
    root = BUILD.parent
    path = os.pathsep.join([str(delta_pyspark()), str(root / "src"), str(root)])
    return {**os.environ, "PYTHONPATH": path, "PYSPARK_PYTHON": sys.executable}
