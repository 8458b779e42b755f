"""Reading where nothing is wrong: the records that units of a consume queue point at, each checked, in one compiled step."""

from __future__ import annotations

from rocketline._impl import compiled

VerifiedRun = tuple[int, int, int, list[memoryview]]
"""Units looked at, records, their bytes, them in buffers."""


@compiled
def verified_run(
    units: memoryview, max_messages: int, max_bytes: int, view: memoryview, base: int, end: int, queue_id: int,
    queue_offset: int, check_crc: bool, codes: bytes | None, oldest: int,
) -> VerifiedRun | None:  # fmt: skip
    """The records that units point at, as many as the limits allow; with `codes` (of a `TagTest`) those with one of them.

    `view` is the file of the log that begins at `base`; records must end before `end`. None: read them one by one, as Python
    always does. Compiled code gives None when a record is not sound or not in the view, when one lies before `oldest`, and
    when a unit has the address of an extended unit instead of a tags code.
    """
    return None
