"""`python -m tests.support.prefetch`: fetch and compile what the interop tests need, before a test's clock runs."""

from __future__ import annotations

import sys

from .apache import SERVER_VERSION, server_coordinates
from .java import JavaUnavailable, classpath
from .java_driver import CLIENT_VERSIONS, client_coordinates, driver_classes


def main() -> int:
    try:
        classpath(*server_coordinates(SERVER_VERSION))
        for version in CLIENT_VERSIONS:
            classpath(*client_coordinates(version))
        driver_classes()
    except JavaUnavailable as error:
        sys.stderr.write(f"the interop tests will not run here: {error}\n")
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
