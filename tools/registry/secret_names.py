"""Which files of a target may hold secrets, told by their names.

Does not look into them. What somebody named otherwise is not noticed, and code is never meant: it is what a change is
made to.
"""

from __future__ import annotations

import re

_FOLDERS = {".ssh", ".aws", ".azure", ".gnupg", ".kube"}
_NAMES = re.compile(
    r"(.+)?\.env|\.env\.(?!(example|sample|template|dist)$).+|\.?_?netrc|\.pgpass|\.pypirc|\.npmrc|\.htpasswd"
    r"|\.?(git-)?credentials(\.(json|toml|ya?ml|ini))?|\.?secrets?(\.(json|toml|ya?ml|ini))?"
    r"|id_(rsa|dsa|ecdsa|ed25519)(_sk)?|.+\.(pem|key|p12|pfx|ppk|jks|keystore|kdbx)"
)


def may_hold_secrets(path: str) -> bool:
    """`path` is relative to the top of a tree, with `/`."""
    *folders, name = path.lower().rstrip("/").split("/")
    return bool(_FOLDERS.intersection(folders)) or _NAMES.fullmatch(name) is not None
