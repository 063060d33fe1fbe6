"""Where the time of a call goes. As a library: `from tools.profiler import GenericProfiler, profile_module`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tools.profiler.library import GenericProfiler as GenericProfiler
    from tools.profiler.library import profile_module as profile_module

__all__ = ["GenericProfiler", "profile_module"]


def __getattr__(name: str) -> Any:
    """Loaded when it is asked for: the modules beside this one are also used without it."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from tools.profiler import library

    return getattr(library, name)
