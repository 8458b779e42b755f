"""RocketMQ data in Spark: stored records as Arrow batches, and the data sources that use them. Needs the extra `spark`.

    from rocketline.spark import session

    spark = session("orders")

The name is imported when it is first used: a process that Spark starts for a task does not need it.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rocketline.spark.sessions import session

__all__ = ["session"]


def __getattr__(name: str) -> Any:
    if name == "session":
        from rocketline.spark.sessions import session

        return session
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
