"""Look on while modules are called, without hooks: code may look for hooks, and take another way where it finds one."""

from __future__ import annotations

import torch


class ModuleCalls:
    """A context manager that calls `before(module)` and `after(module, args, kwargs, result)` around each call of one.

    Where the call raises, the result is None. What a `torch.compile` made before is not looked into.
    """

    def __init__(self, before, after):
        self._before, self._after = before, after

    def __enter__(self):
        before, after = self._before, self._after
        plain = self._plain = torch.nn.Module.__call__

        def called(module, *args, **kwargs):
            before(module)
            result = None
            try:
                result = plain(module, *args, **kwargs)
            finally:
                after(module, args, kwargs, result)
            return result

        torch.nn.Module.__call__ = called
        return self

    def __exit__(self, *error):
        torch.nn.Module.__call__ = self._plain
