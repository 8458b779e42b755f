"""Spark on an object store through `s3a://`: Hadoop's connector from Maven, in the version of Spark's own Hadoop."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pyspark
from tests.support.java import classpath
from tests.support.s3_server import S3Server


def hadoop_aws() -> str:
    """The coordinates that fit the installed PySpark."""
    (jar,) = (Path(pyspark.__file__).parent / "jars").glob("hadoop-client-api-*.jar")
    found = re.search(r"(\d+\.\d+\.\d+)\.jar$", jar.name)
    assert found is not None, jar
    return f"org.apache.hadoop:hadoop-aws:{found[1]}"


def s3a_settings(server: S3Server) -> dict[str, str]:
    """Settings of a session. The jars have half a gigabyte and are used where they lie: `spark.jars` would copy them."""
    return {
        "spark.driver.extraClassPath": os.pathsep.join(classpath(hadoop_aws()).split(":")),
        "spark.hadoop.fs.s3a.endpoint": f"http://127.0.0.1:{server.port}",
        "spark.hadoop.fs.s3a.path.style.access": "true",
        "spark.hadoop.fs.s3a.connection.ssl.enabled": "false",
    }
