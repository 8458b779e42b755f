"""Turns failures of Spark into the error of rocketline that caused them.

An error that a source raises on an executor or in the planner comes back wrapped in several tracebacks of Java and
Python. The last line that names an error of ours has the cause; the rest is shown with `--debug`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

from rocketline import errors
from rocketline.client.bulk.cluster import may_pass
from rocketline.errors import RocketlineError

_OURS = re.compile(r"^(?:pyspark\.\S+: )?rocketline\.errors\.(\w+): (.*)$", re.MULTILINE)


class PipelineFailed(RocketlineError):
    """A job ended with an error."""


@contextmanager
def explained() -> Iterator[None]:
    """Raise PipelineFailed with the text of our own error, when that is what caused an error of Spark."""
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


def is_passing(error: BaseException) -> bool:
    """Whether a failure, also one that Spark reports of its workers, may be over when the same is tried again."""
    found = _OURS.findall(str(error))
    kind = type(error) if isinstance(error, RocketlineError) or not found else getattr(errors, found[-1][0], None)
    return kind is not None and may_pass(kind)
