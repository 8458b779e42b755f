"""A Python worker of Spark that connects first and loads its modules then: python early_worker.py -m MODULE

Spark gives a worker of a streaming source ten seconds from its start to its connection, and no setting changes that. On a
busy machine pyspark alone takes longer to load. `clusters.worker_python` has workers that must connect started by this.
"""

import os
import runpy
import socket
import struct
import sys


def connect() -> socket.socket:
    """What `pyspark.util.local_connect_and_auth` does, without pyspark."""
    sock = socket.create_connection(("127.0.0.1", int(os.environ["PYTHON_WORKER_FACTORY_PORT"])))
    secret = os.environ["PYTHON_WORKER_FACTORY_SECRET"].encode()
    sock.sendall(struct.pack("!i", len(secret)) + secret)
    (size,) = struct.unpack("!i", sock.recv(4, socket.MSG_WAITALL))
    answer = sock.recv(size, socket.MSG_WAITALL)
    assert answer == b"ok", answer
    return sock


def main(_: str, module: str) -> None:
    sock = connect()
    sys.path[0] = os.getcwd()  # as `python -m` has it
    del sys.argv[:2]

    import pyspark.util

    connected = [(sock.makefile("rwb", int(os.environ.get("SPARK_BUFFER_SIZE", "65536"))), sock)]
    connect_again = pyspark.util.local_connect_and_auth
    pyspark.util.local_connect_and_auth = lambda *place: connected.pop() if connected else connect_again(*place)
    runpy.run_module(module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
