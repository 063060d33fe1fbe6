"""The runtime files that a change needs where an earlier change, which had brought them along, is left out."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import PurePosixPath

from tools.rewrite import overlay

PACKAGE = "ratchet_ops"
_IMPORTED = re.compile(rf"{PACKAGE}\.(\w+) import|^\s*from \. import ([\w, ]+)|^\s*from \.(\w+) import", re.MULTILINE)


def needed(
    contents: Mapping[str, bytes | None], known: Mapping[str, bytes], is_there: Callable[[str], bool]
) -> dict[str, bytes]:
    """Those of the `known` runtime files, by path, that these contents import and that are not there."""
    of_copies = [file for path in contents for file in overlay.runtime(path).items()]
    found = {path: text.encode() for path, text in of_copies if path not in contents and not is_there(path)}
    texts = [text for text in contents.values() if text]
    while texts:
        text = texts.pop().decode("utf-8", "replace")
        names = {name.strip() for said in _IMPORTED.findall(text) for part in said for name in part.split(",")}
        for path, data in known.items():
            if PurePosixPath(path).stem in names and path not in {*contents, *found} and not is_there(path):
                found[path] = data
                texts.append(data)
    for path in [*contents, *found]:
        init = str(PurePosixPath(path).with_name("__init__.py"))
        if init in known and init not in {*contents, *found} and not is_there(init):
            found[init] = known[init]
    return found
