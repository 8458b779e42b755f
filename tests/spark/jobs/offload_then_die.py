"""`offload` that is killed: when it has copied a file and is about to list it.

python -m tests.spark.jobs.offload_then_die STORE ADDRESS FILES
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import Any

from rocketline.pipelines import offload
from rocketline.spark.log.offloaded import Manifest


def main() -> None:
    store, address, files = sys.argv[1:]
    write = offload._Offload._write

    def die(job: Any, manifest: Manifest) -> None:
        if len(manifest.files) > int(files):
            os.kill(os.getpid(), signal.SIGKILL)
        write(job, manifest)

    offload._Offload._write = die  # type: ignore[method-assign]
    offload.offload(Path(store), address, print)


if __name__ == "__main__":
    main()
