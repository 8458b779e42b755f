"""Write docs/reference/requests.md from the source: `PYTHONPATH=src:. python tools/write_request_reference.py`."""

from __future__ import annotations

from tests.support.request_table import PAGE, page


def main() -> None:
    PAGE.write_text(page(), "utf-8")
    print(f"wrote {PAGE}")


if __name__ == "__main__":
    main()
