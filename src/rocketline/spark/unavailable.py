"""A placeholder for a data source whose libraries are missing or too old; it raises an error that says so.

Spark imports every module called `pyspark_*` when it looks for any source. If one of these imports failed, no source
would be found, and the user would be told only that there is no such source.
"""

from __future__ import annotations

from typing import NoReturn

import pyspark
from pyspark.sql.datasource import DataSource

from rocketline.errors import ConfigError


def unavailable_source(source: str, error: ImportError) -> type[DataSource]:
    """A source of this name whose methods raise ConfigError with what is missing."""

    def refuse(*_: object) -> NoReturn:
        raise ConfigError(
            f"{source} needs PySpark 4.2 or newer with pyarrow, numpy and pandas below 3, and this is PySpark "
            f"{pyspark.__version__}: {error}. pip install 'rocketline[spark]', on executors too"
        )

    methods = dict.fromkeys(("schema", "reader", "streamReader", "writer", "streamWriter"), refuse)
    return type("UnavailableSource", (DataSource,), {"name": classmethod(lambda _: source), **methods})
