"""Spark sessions that know our data sources: `session` for programs and notebooks, `open_session` for one pipeline.

Common reasons why a session would fail later, with an error of Java, are checked first: Java, the versions of Spark and
pandas, and the interpreter of the workers. An existing session (in a notebook, under `spark-submit`, on Databricks) is
used as it is and left running.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rocketline.errors import ConfigError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DEFAULT_MASTER = "local[*]"
_WANTED = {"pyspark": ((4, 2), None), "pyarrow": ((18,), None), "numpy": ((1, 26), None), "pandas": ((2, 2), (3,))}
_LITTLE_COMPILATION = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
_TASKS_ONLY = {f"spark.{side}.defaultJavaOptions": _LITTLE_COMPILATION for side in ("driver", "executor")}
"""For a JVM that only distributes tasks: optimising its code would take seconds of CPU time from the tasks. Options in
`extraJavaOptions` override these."""
_INSTALL = "install the extra `spark`: pip install 'rocketline[spark]'"


def session(
    name: str = "rocketline", master: str | None = None, settings: Mapping[str, str] | None = None
) -> SparkSession:
    """A Spark session that reads and writes `rocketmq` and reads `rocketmq-log`; it runs until its `stop()`.

        spark = rocketline.spark.session("orders")
        spark.read.format("rocketmq").option("namesrv", "127.0.0.1:9876").option("subscribe", "orders").load()

    Spark's workers use this Python, unless PYSPARK_PYTHON names another one. `master` is `local[*]` by default, and may be
    the address of a Spark Connect server, sc://host:port, which must have rocketline itself. `settings` are Spark's.
    A session that is active already gets the sources and is otherwise left as it is. ConfigError names what is missing
    on this machine.
    """
    check_libraries()
    from pyspark.sql import SparkSession

    found = SparkSession.getActiveSession()
    if found is None:
        if not _is_remote(master):
            check_java()
        os.environ.update(_worker_variables())
        found = _build(name, master, dict(settings or {}))
    if not _is_remote(master):
        _register_sources(found)
    return found


def _register_sources(session: SparkSession) -> None:
    """Spark then need not look for the sources with a Python that may be another one."""
    from rocketline.spark.live.source import LiveSource
    from rocketline.spark.log.source import LogSource

    for source in (LiveSource, LogSource):
        session.dataSource.register(source)


@contextmanager
def open_session(
    name: str, master: str | None = None, settings: Mapping[str, str] | None = None, *, tasks_only: bool = False
) -> Iterator[SparkSession]:
    """A session for one pipeline; ConfigError names what is missing on this machine.

    `master` may also be the address of a Spark Connect server, sc://host:port. With `tasks_only` the job has no
    rows, only functions to run (`run_tasks`).
    """
    check_libraries()
    from pyspark.sql import SparkSession

    active = SparkSession.getActiveSession()
    if active is not None:
        yield active
        return
    is_remote = _is_remote(master)
    if not is_remote:
        check_java()
    with _worker_environment():
        made = _build(name, master, {**(_TASKS_ONLY if tasks_only and not is_remote else {}), **(settings or {})})
        try:
            yield made
        finally:
            made.stop()


def check_libraries() -> None:
    """ConfigError when a library of the extra `spark` is missing, too old, or too new for Spark."""
    for name, (lowest, below) in _WANTED.items():
        try:
            found = version(name)
        except PackageNotFoundError:
            raise ConfigError(f"pipelines need {name}, which is not installed: {_INSTALL}") from None
        numbers = tuple(int(part) for part in re.findall(r"\d+", found)[:3])
        if numbers < lowest or (below is not None and numbers >= below):
            bounds = f"{_dotted(lowest)} or newer" + (f", but below {_dotted(below)}" if below else "")
            raise ConfigError(f"{name} {found} is installed, pipelines need {bounds}: {_INSTALL}")


def check_java() -> None:
    """ConfigError when there is no Java to start Spark with."""
    home = os.environ.get("JAVA_HOME")
    if home and not os.access(Path(home) / "bin" / "java", os.X_OK):
        raise ConfigError(f"JAVA_HOME is {home}, but there is no bin/java: set it to a JDK 17 or newer, or unset it")
    if not home and shutil.which("java") is None:
        raise ConfigError(
            "Spark needs Java 17 or newer and there is no `java` on PATH: install one (apt install openjdk-17-jre), "
            "or set JAVA_HOME, or use a Spark Connect server with --master sc://host:15002"
        )


def _worker_variables() -> dict[str, str]:
    """The environment in which local workers, which the JVM starts, use this interpreter and this rocketline."""
    source = str(Path(__file__).resolve().parents[2])
    path = os.pathsep.join(dict.fromkeys([source, *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))]))
    return {"PYSPARK_PYTHON": os.environ.get("PYSPARK_PYTHON", sys.executable), "PYTHONPATH": path}


@contextmanager
def _worker_environment() -> Iterator[None]:
    wanted = _worker_variables()
    before = {name: os.environ.get(name) for name in wanted}
    os.environ.update(wanted)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def _build(name: str, master: str | None, settings: dict[str, str]) -> SparkSession:
    from pyspark.sql import SparkSession

    is_remote = _is_remote(master)
    builder = SparkSession.builder.appName(f"rocketline {name}")
    builder = builder.remote(master or "") if is_remote else builder.master(master or DEFAULT_MASTER)
    defaults = {"spark.sql.session.timeZone": "UTC"}
    if not is_remote:
        defaults |= {"spark.ui.showConsoleProgress": "false"}
    if (master or DEFAULT_MASTER).startswith("local"):
        defaults |= {
            "spark.ui.enabled": "false",
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.sql.shuffle.partitions": str(2 * (os.cpu_count() or 1)),
        }
    for key, value in {**defaults, **settings}.items():
        builder = builder.config(key, value)
    session = _started(builder, master or DEFAULT_MASTER)
    if not is_remote:
        session.sparkContext.setLogLevel("ERROR")
    return session


def _started(builder: Any, master: str) -> SparkSession:
    from py4j.protocol import Py4JJavaError
    from pyspark.errors import PySparkException

    try:
        session: SparkSession = builder.getOrCreate()
        return session
    except (Py4JJavaError, PySparkException) as error:
        cause = error.java_exception.getMessage() if isinstance(error, Py4JJavaError) else str(error)
        raise ConfigError(f"Spark cannot be started with master {master}: {str(cause).splitlines()[0]}") from error


def _is_remote(master: str | None) -> bool:
    return master is not None and master.startswith("sc://")


def _dotted(numbers: tuple[int, ...]) -> str:
    return ".".join(map(str, numbers))
