"""Write docs/reference/spark.md from the tables and schemas in the code, so that the page always matches them.

    python tools/write_spark_reference.py

Needs the extra `spark`, as `.venv` has it.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby
from pathlib import Path
from textwrap import fill
from types import ModuleType
from typing import Any

from pyspark.sql.pandas.types import from_arrow_schema

from rocketline.spark import access_options, columns
from rocketline.spark.live import source as live
from rocketline.spark.log import reader as log_reader
from rocketline.spark.log import source as log
from rocketline.spark.sink import sink
from rocketline.spark.sink.rows import SINK_COLUMNS

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "reference" / "spark.md"

INTRODUCTION = """# Spark: options and columns

Written by `python tools/write_spark_reference.py`; change the code, not this page. [RocketMQ and Spark](../howto/spark.md)
shows how to use them. Names of options are the same in upper and lower case. An option that is not known is refused, with
the name that was probably meant.
"""
STARTING = """
Starting options are for new queries; a restarted stream continues from its checkpoint. Queues and topics that appear later
are read from their beginning.
"""
LINE = 120
OPTIONS = "| option | default | meaning |\n| --- | --- | --- |"


def page() -> str:
    """The whole page."""
    types = {name: kind for schema in (columns.COLUMNS, columns.MORE_COLUMNS) for name, kind in spark_types(schema)}
    damage = ", ".join(f"`{name}` ({kind})" for name, kind in spark_types(log_reader.DAMAGE_COLUMNS))
    more = ", ".join(f"`{name}`" for name in columns.MORE_COLUMNS.names)
    schemas = (
        f"Without a schema there are all of them but {more}. A schema may name any of them, in any order; what it "
        f"leaves out is not decoded. With `onDamage=report`, `rocketmq-log` also has {damage}."
    )
    return "\n".join(
        [
            INTRODUCTION,
            "## Reading topics: `rocketmq`\n",
            *option_table(live),
            STARTING,
            "## Reading a commit log: `rocketmq-log`\n",
            *option_table(log),
            "\n## Columns of both sources\n",
            *column_table(columns, types),
            f"\n{fill(schemas, LINE)}\n",
            "## Writing: `rocketmq`\n",
            *option_table(sink),
            "\n## Columns of the sink\n",
            *column_table(sink, SINK_COLUMNS),
            "\nDelivery is at least once. A task that is run again sends its rows again, with the same unique ids.\n",
            "## Credentials and TLS: all of them\n",
            *option_table(access_options),
            "",
        ]
    )


def spark_types(schema: Any) -> Iterator[tuple[str, str]]:
    for field in from_arrow_schema(schema):
        yield field.name, field.dataType.simpleString()


def tables(module: ModuleType) -> Iterator[tuple[str, list[list[str]]]]:
    """The tables of a module's docstring: the name of the first column, and the cells of each row."""
    for is_table, lines in groupby((module.__doc__ or "").splitlines(), lambda line: line.startswith("| ")):
        if is_table:
            header, _, *rows = list(lines)
            yield cells(header)[0], [cells(row) for row in rows]


def cells(row: str) -> list[str]:
    # `a || b` inside a cell is an expression of tags
    return [cell.strip() for cell in row.replace("||", "\0").strip("|").split("|")]


def rows_of(module: ModuleType, kind: str) -> list[list[str]]:
    """The rows of the table whose first column has this name; one without an option goes on with the one before."""
    found: list[list[str]] = []
    for row in next(rows for name, rows in tables(module) if name == kind):
        if row[0]:
            found.append(row)
        else:
            found[-1] = [f"{cell} {more}".strip() for cell, more in zip(found[-1], row)]
    return found


def names(cell: str) -> list[str]:
    return [name for name in cell.split(", ") if name != "..."]


def in_markdown(text: str) -> str:
    return text.replace("\0", "\\|\\|")


def option_table(module: ModuleType) -> Iterator[str]:
    yield OPTIONS
    for option, default, meaning in rows_of(module, "option"):
        shown = ", ".join(f"`{name}`" for name in names(option)) + (", ..." if option.endswith("...") else "")
        text = meaning.replace("see `access_options`", "see [below](#credentials-and-tls-all-of-them)")
        text = text.replace("see `log.reader`", "stop, leave out with a warning, or give a row for each damaged part")
        yield in_markdown(f"| {shown} | {default} | {text} |")


def column_table(module: ModuleType, types: dict[str, str]) -> Iterator[str]:
    yield "| column | type | meaning |\n| --- | --- | --- |"
    described = {name: (cell, meaning) for cell, meaning in rows_of(module, "column") for name in names(cell)}
    if set(described) != set(types):
        raise SystemExit(
            f"{module.__name__}: the table in its docstring has {sorted(set(described) ^ set(types))} wrong"
        )
    for cell in dict.fromkeys(cell for cell, _ in described.values()):
        inside = names(cell)
        kinds = [types[name] for name in inside]
        kind = kinds[0] if len(set(kinds)) == 1 else ", ".join(kinds)
        yield in_markdown(f"| {', '.join(f'`{name}`' for name in inside)} | {kind} | {described[inside[0]][1]} |")


def main() -> None:
    PAGE.write_text(page(), "utf-8")
    print(f"wrote {PAGE.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
