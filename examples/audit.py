"""Count a topic's messages by tag, without an event loop, and remember how far we came.

    python examples/audit.py orders 127.0.0.1:9876

Run it twice: the second run counts only what is new.
"""

from __future__ import annotations

import sys
from collections import Counter

from rocketline.client import ConsumeFrom, blocking


def main(topic: str, namesrv: str) -> Counter[str]:
    counts: Counter[str] = Counter()
    with blocking.PullConsumer(namesrv, group="audit", from_where=ConsumeFrom.FIRST) as consumer:
        consumer.assign(consumer.queues(topic))
        while messages := consumer.poll(max_messages=500, timeout=1.0):
            counts.update(message.tag or "no tag" for message in messages)
        consumer.commit()
    for tag, count in counts.most_common():
        print(f"{count:8} {tag}")
    return counts


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2] if len(sys.argv) > 2 else "127.0.0.1:9876")
