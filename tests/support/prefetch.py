"""`python -m tests.support.prefetch`: fetch and compile what tests with Java need, before a test's clock runs."""

from __future__ import annotations

import sys
from concurrent.futures import ThreadPoolExecutor

from .apache import SERVER_VERSION, server_coordinates
from .apache_proxy import proxy_coordinates
from .delta import delta_jars, delta_pyspark
from .five_clients import COMMANDS, build
from .java import JavaUnavailable, classpath
from .java_driver import CLIENT_VERSIONS, client_coordinates, driver_classes
from .registry import registry_folder
from .toolchains import ToolMissing


def main() -> int:
    with ThreadPoolExecutor() as pool:  # they mostly wait for downloads and compilers
        done = [pool.submit(fetch_jars), *(pool.submit(fetch_client, language) for language in COMMANDS)]
    return max(task.result() for task in done)


def fetch_client(language: str) -> int:
    try:
        build(language)
    except ToolMissing as error:
        sys.stderr.write(f"the {language} client will not run here: {error}\n")
        return 1
    return 0


def fetch_jars() -> int:
    try:
        classpath(*server_coordinates(SERVER_VERSION))
        classpath(*proxy_coordinates(SERVER_VERSION))
        for version in CLIENT_VERSIONS:
            classpath(*client_coordinates(version))
        driver_classes()
        delta_jars()
        delta_pyspark()
        registry_folder()
    except JavaUnavailable as error:
        sys.stderr.write(f"tests with Java will not all run here: {error}\n")
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
