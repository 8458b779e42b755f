"""Java for tests and benchmarks: find the tools, resolve Maven coordinates, compile our own sources.

Rules kept here:

* Maven is used exactly as this machine has it set up; nothing here names a repository.
* Everything made lands under `build/` and is reused: class paths by their coordinates, classes by the
  content they were compiled from. A second run starts neither Maven nor javac.
* Several test workers may ask at once: a file lock lets one of them do the work while the rest wait.
"""

from __future__ import annotations

import fcntl
import functools
import hashlib
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from xml.sax.saxutils import escape

from tests.support.patience import PATIENCE_S

ROOT = Path(__file__).resolve().parents[2]
BUILD = ROOT / "build"
MAVEN_TIMEOUT_S = 600
JAVA_RELEASE = "17"

POM = """<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>rocketline.build</groupId>
  <artifactId>classpath</artifactId>
  <version>1</version>
  <dependencies>
{dependencies}
  </dependencies>
</project>
"""


class JavaUnavailable(RuntimeError):
    """A Java tool or an artifact cannot be had on this machine."""


class JavaCompileError(RuntimeError):
    """Our own Java sources do not compile."""


def tool(name: str) -> str:
    """The path of `java`, `javac` or `mvn`: JAVA_HOME and MAVEN_HOME first, then PATH."""
    homes = [os.environ[key] for key in ("JAVA_HOME", "MAVEN_HOME") if os.environ.get(key)]
    found = shutil.which(name, path=os.pathsep.join(f"{home}/bin" for home in homes)) if homes else None
    found = found or shutil.which(name)
    if found is None:
        raise JavaUnavailable(
            f"{name} is not on PATH (nor in JAVA_HOME or MAVEN_HOME): install a JDK {JAVA_RELEASE} and Maven"
        )
    return found


def require_java(*coordinates: str) -> None:
    """Leave the test unless Java works here: skip on a laptop, fail where CI=true.

    With `coordinates`, their jars must be obtainable too.
    """
    import pytest

    try:
        for name in ("java", "mvn"):
            tool(name)
        _require_release()
        if coordinates:
            classpath(*coordinates)
    except JavaUnavailable as error:
        if os.environ.get("CI", "").lower() == "true":
            pytest.fail(f"CI must have Java: {error}", pytrace=False)
        pytest.skip(str(error))


def classpath(*coordinates: str, alone: bool = False) -> str:
    """The ':'-joined class path of Maven coordinates such as "org.apache.rocketmq:rocketmq-client:5.4.0".

    `alone`: without what they depend on, for jars that are added to a program that has it.
    """
    if not coordinates:
        raise ValueError("classpath() needs at least one group:artifact:version")
    wanted = sorted(set(coordinates))
    pom = _pom(wanted, alone)
    folder = BUILD / "maven" / _digest(pom.encode() if alone else "\n".join(wanted).encode())
    result = folder / "classpath.txt"
    cached = _usable_classpath(result)
    if cached is not None:
        return cached
    # One lock for all coordinates: two Mavens downloading into one local repository can harm each other.
    with locked(BUILD / "maven" / "lock"):
        cached = _usable_classpath(result)
        if cached is not None:
            return cached
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "pom.xml").write_text(pom, encoding="utf-8")
        resolved = _run_maven(folder, wanted)
        _write_whole(result, resolved)
        return resolved


def compile_java(sources_dir: Path, classpath: str, name: str, also: Path | None = None) -> Path:
    """Compile every .java file under `sources_dir`, and those under `also` that they use; returns the folder of classes,
    made once per content."""
    sources = sorted(sources_dir.rglob("*.java"))
    if not sources:
        raise JavaCompileError(f"no .java files under {sources_dir}")
    content = hashlib.sha256(f"{JAVA_RELEASE}\0{classpath}\0".encode())
    for source in sources + sorted(also.rglob("*.java") if also else ()):
        content.update(f"{source.name}\0".encode())
        content.update(source.read_bytes() + b"\0")
    classes = BUILD / "java" / f"{name}-{content.hexdigest()[:16]}"
    if classes.is_dir():
        return classes
    with locked(BUILD / "java" / "lock"):
        if not classes.is_dir():
            _run_javac(sources, classpath, classes, also)
    return classes


def tail(text: str, lines: int = 40) -> str:
    """The last lines of a tool's output, for an error message."""
    return "\n".join(text.rstrip().splitlines()[-lines:])


@functools.cache
def _require_release() -> None:
    """javac must know the release our sources are written for."""
    done = subprocess.run([tool("javac"), "-version"], capture_output=True, text=True, timeout=PATIENCE_S)
    said = (done.stdout + done.stderr).strip()
    version = re.search(r"javac (\d+)", said)
    if version is None or int(version[1]) < int(JAVA_RELEASE):
        raise JavaUnavailable(f"a JDK {JAVA_RELEASE} or newer is needed, {tool('javac')} is {said!r}")


def _pom(coordinates: list[str], alone: bool) -> str:
    blocks = []
    nothing_else = "<exclusions><exclusion><groupId>*</groupId><artifactId>*</artifactId></exclusion></exclusions>"
    for coordinate in coordinates:
        parts = coordinate.split(":")
        if len(parts) != 3 or not all(parts):
            raise ValueError(f"not group:artifact:version: {coordinate!r}")
        group, artifact, version = (escape(part) for part in parts)
        blocks.append(
            f"    <dependency><groupId>{group}</groupId><artifactId>{artifact}</artifactId>"
            f"<version>{version}</version>{nothing_else if alone else ''}</dependency>"
        )
    return POM.format(dependencies="\n".join(blocks))


def _run_maven(folder: Path, coordinates: list[str]) -> str:
    output = folder / "resolved.txt"
    command = [tool("mvn"), "-q", "-B", "dependency:build-classpath", f"-Dmdep.outputFile={output}"]
    try:
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=MAVEN_TIMEOUT_S)
    except subprocess.TimeoutExpired as error:
        raise JavaUnavailable(f"Maven took over {MAVEN_TIMEOUT_S} s for {', '.join(coordinates)}") from error
    if done.returncode != 0:
        said = tail(done.stdout + done.stderr)
        raise JavaUnavailable(f"Maven could not resolve {', '.join(coordinates)}:\n{said}")
    return output.read_text(encoding="utf-8").strip()


def _usable_classpath(result: Path) -> str | None:
    """The stored class path, unless it is absent or the local repository lost a jar since."""
    try:
        stored = result.read_text(encoding="utf-8")
    except FileNotFoundError:
        return None
    return stored if stored and all(os.path.exists(jar) for jar in stored.split(os.pathsep)) else None


def _run_javac(sources: list[Path], classpath: str, classes: Path, also: Path | None) -> None:
    scratch = classes.with_name(f"{classes.name}.{os.getpid()}.tmp")
    shutil.rmtree(scratch, ignore_errors=True)
    scratch.mkdir(parents=True)
    command = [tool("javac"), "--release", JAVA_RELEASE, "-encoding", "UTF-8", "-proc:none", "-nowarn"]
    command += ["-sourcepath", str(also or ""), "-cp", classpath, "-d", str(scratch), *map(str, sources)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S)
    if done.returncode != 0:
        shutil.rmtree(scratch, ignore_errors=True)
        raise JavaCompileError(f"javac failed for {sources[0].parent}:\n{tail(done.stdout + done.stderr)}")
    scratch.rename(classes)


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:16]


def _write_whole(path: Path, text: str) -> None:
    """Readers take no lock, so the file must appear complete or not at all."""
    scratch = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    scratch.write_text(text, encoding="utf-8")
    scratch.replace(path)


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Alone among all processes that lock the same file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
