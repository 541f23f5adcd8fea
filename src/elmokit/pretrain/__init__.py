"""A corpus -> a trained biLM. `elmokit.pretrain(texts, out=...)` is plan.py's function of that name.

The package and the function share a name, and importing any module of a package makes the package an attribute of
its parent: whatever function `elmokit.pretrain` were before, it would be this module after the first `import
elmokit.pretrain.run`. So this module is what `from elmokit import pretrain` gives, always, and it can be called.
For type checkers the name is the function's (elmokit/__init__.py).
"""

from __future__ import annotations

import sys
from inspect import Signature, signature
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from elmokit.pretrain.training import Trained


class _CallablePackage(ModuleType):
    def __call__(self, *arguments: Any, **options: Any) -> Trained:
        from elmokit.pretrain.plan import pretrain  # torch is loaded when somebody trains

        return pretrain(*arguments, **options)

    @property
    def __signature__(self) -> Signature:  # for help and editors
        from elmokit.pretrain.plan import pretrain

        return signature(pretrain)


sys.modules[__name__].__class__ = _CallablePackage
