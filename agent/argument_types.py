"""What the values of options look like, for argparse: wrong ones are told in its own way."""

from __future__ import annotations

import argparse
import os
import re
from pathlib import Path


def names(text: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in text.split(",") if name.strip())


def image_name(text: str) -> str:
    if not re.fullmatch(r"(?:[a-z0-9.-]+(?::\d+)?/)?[a-z0-9]+(?:[._/-]+[a-z0-9]+)*:\w[\w.-]{0,127}", text):
        raise argparse.ArgumentTypeError(f"{text} is no name for an image with a tag; one looks like mine/rocm:1")
    return text


def pair(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not (equals and re.fullmatch(r"[A-Za-z_]\w*", name)):
        raise argparse.ArgumentTypeError(f"{text} is not NAME=VALUE")
    return name, value


def file_to_write(text: str) -> Path:
    """Looked at before the work whose result is written there."""
    path = Path(text)
    if not os.access(path.parent, os.W_OK | os.X_OK) or not path.parent.is_dir():
        raise argparse.ArgumentTypeError(f"there is no folder {path.parent} to write to")
    if path.is_dir():
        raise argparse.ArgumentTypeError(f"{text} is a folder")
    return path


def positive(text: str) -> float:
    value = float(text)
    if not 0 < value < float("inf"):
        raise argparse.ArgumentTypeError(f"{text} is not a positive number")
    return value


def count(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"{text} is not 1 or more")
    return value


def count_or_zero(text: str) -> int:
    value = int(text)
    if value < 0:
        raise argparse.ArgumentTypeError(f"{text} is below 0")
    return value


def numbers(text: str) -> tuple[float, ...]:
    return tuple(float(each) for each in text.split(","))
