"""Tasks of Celery on RocketMQ.

    celery --workdir examples/adapters --app celery_tasks worker --pool solo     # runs tasks until Ctrl-C
    python examples/adapters/celery_tasks.py 1001 1002                           # bills two orders

The environment variable BROKER_URL names another cluster than rocketmq://127.0.0.1:9876//.
"""

from __future__ import annotations

import os
import sys

from celery import Celery

import rocketline.adapters.kombu  # noqa: F401 (makes the name rocketmq:// known)

app = Celery("celery_tasks", broker=os.environ.get("BROKER_URL", "rocketmq://127.0.0.1:9876//"))
app.conf.task_acks_late = True  # a worker that dies leaves its task to another
app.conf.broker_transport_options = {"visibility_timeout": 600}


@app.task
def bill(order: str) -> None:
    print(f"billed {order}", flush=True)


if __name__ == "__main__":
    for order in sys.argv[1:]:
        bill.delay(order)
        print(f"asked to bill {order}")
