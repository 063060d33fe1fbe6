"""Write the table of promises in `docs/trust.md` from the attack suite of the tests."""

from __future__ import annotations

import sys
from pathlib import Path

from tests.sandbox.attacks.suite import ALL, HELD_TO, PROVIDERS, When

PAGE = Path(__file__).resolve().parent.parent / "docs" / "trust.md"
BEGIN = "<!-- The table is written by `make docs` from tests/sandbox/attacks/; do not edit it. -->\n"
END = "<!-- End of the table. -->\n"
WORDS: dict[When, str] = {
    "always": "yes",
    "never": "no",
    "separate_users": "as root",
    "not separate_users": "not as root",
    "kernel_limits": "with control groups",
}


def table() -> str:
    lines = [
        f"| promise | {' | '.join(PROVIDERS)} | what is tried from inside |",
        "| --- " * (len(PROVIDERS) + 2) + "|",
    ]
    for promise, held in HELD_TO.items():
        tried = "; ".join(check.name for check in ALL if check.promise == promise)
        lines.append(f"| {promise} | {' | '.join(WORDS[when] for when in held)} | {tried} |")
    return "\n".join(lines) + "\n"


def page() -> str:
    """The page as it is, with the table as it should be. Raises: ValueError when it has no place for one."""
    before, _, rest = PAGE.read_text().partition(BEGIN)
    _, end, after = rest.partition(END)
    if not end:
        raise ValueError(f"{PAGE} has no place for the table")
    return f"{before}{BEGIN}\n{table()}\n{END}{after}"


def main() -> int:
    PAGE.write_text(page())
    print(f"wrote {PAGE}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
