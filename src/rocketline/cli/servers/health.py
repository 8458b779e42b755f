"""Whether a server on this machine is well, by its page: what the health check of a container runs.

    python -m rocketline.cli.servers.health 5557

The page is plain or TLS, as its server is; a first plain question finds out. Nothing secret is asked or told and nothing
leaves the machine, so certificates are not checked and proxies of the environment are not used.
"""

from __future__ import annotations

import ssl
import sys
from http.client import HTTPConnection, HTTPException, HTTPSConnection

HOST = "127.0.0.1"
PORT = 5557
LIMIT_S = 4.0


def health(port: int) -> tuple[bool, str]:
    """Whether the server is well, and what it says of itself."""
    try:
        return _asked(HTTPConnection(HOST, port, timeout=LIMIT_S))
    except ConnectionRefusedError as error:
        return False, f"nobody listens at {HOST}:{port}: {error.strerror}"
    except (ConnectionError, HTTPException):
        pass  # as a server that takes only TLS answers
    except OSError as error:
        return False, f"no answer from {HOST}:{port}: {error}"
    unchecked = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    unchecked.check_hostname, unchecked.verify_mode = False, ssl.CERT_NONE
    try:
        return _asked(HTTPSConnection(HOST, port, timeout=LIMIT_S, context=unchecked))
    except (OSError, HTTPException) as error:
        return (
            False,
            f"no answer from {HOST}:{port}, plain or by TLS (it may want a certificate of its reader): {error}",
        )


def _asked(connection: HTTPConnection) -> tuple[bool, str]:
    try:
        connection.request("GET", "/health")
        answer = connection.getresponse()
        return answer.status == 200, answer.read().decode().strip()
    finally:
        connection.close()


if __name__ == "__main__":
    well, text = health(int(sys.argv[1]) if len(sys.argv) > 1 else PORT)
    print(text)
    sys.exit(0 if well else 1)
