"""The page on errors, docs/troubleshooting.md, as this package has it inside."""

from __future__ import annotations

import re
from pathlib import Path

from . import _core

__all__ = ["PAGE", "entry_of", "locate", "names"]

#: It lies beside the extension module, as all that is not Python does.
PAGE = Path(_core.__file__).parent / "doc" / "troubleshooting.md"
_IN_TREE = "docs/troubleshooting.md"
_ANCHOR = re.compile(r'^<a id="(TCPX_\w+)"></a>\n', re.MULTILINE)
_LINK = re.compile(r"\[([^\]]+)\]\(#?([^)]*)\)")


def _entries() -> dict[str, str]:
    text = PAGE.read_text(encoding="utf-8")
    found = list(_ANCHOR.finditer(text))
    ends = [each.start() for each in found[1:]] + [len(text)]
    # The last entry of a chapter ends where the next chapter begins.
    return {
        each.group(1): text[each.end() : end].split("\n## ")[0].strip()
        for each, end in zip(found, ends, strict=True)
    }


def names() -> list[str]:
    """Of all errors and hints that have an entry."""
    return list(_entries())


def entry_of(name: str) -> str | None:
    """The entry of `TCPX_E_TIMEOUT`, which may be given as `timeout`, too; None: there is no such name."""
    entries = _entries()
    for prefix in ("", "TCPX_", "TCPX_E_", "TCPX_H_"):
        entry = entries.get(prefix + name.upper())
        if entry is not None:
            # Links within the page are names that can be asked for; others lead to pages that are not here.
            return _LINK.sub(lambda link: f"{link[1]} ({link[2]})" if link[2].startswith("TCPX_") else link[1], entry)
    return None


def locate(help: str) -> str:
    """What the library says about an error, with the page where it is on this machine."""
    return help.replace(_IN_TREE, str(PAGE)) if PAGE.is_file() else help
