"""Failures of Spark in the words of whoever caused them.

What a source raises on an executor or in the planner comes back wrapped in Java's and Python's tracebacks, several deep. The
last line that names an error of ours says what to do; the rest is for `--debug`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

from rocketline.errors import RocketlineError

_OURS = re.compile(r"^(?:pyspark\.\S+: )?rocketline\.errors\.(\w+): (.*)$", re.MULTILINE)


class PipelineFailed(RocketlineError):
    """A job ended with an error."""


@contextmanager
def explained() -> Iterator[None]:
    """Turn an error of Spark that was caused by one of ours into that one."""
    from pyspark.errors import PySparkException

    try:
        yield
    except PySparkException as error:
        cause = cause_of(str(error))
        if cause is None:
            raise
        raise PipelineFailed(cause) from error


def cause_of(text: str) -> str | None:
    """
    >>> cause_of("Job aborted\\n  File x\\nrocketline.errors.CorruptRecord: a.log: no sound record at 5\\n at java.lang")
    'a.log: no sound record at 5'
    """
    found = _OURS.findall(text)
    return found[-1][1] if found else None
