"""Makes `sparse_topk` of a checkout the package `ops` itself: an editable install puts this file on the path.

The library is imported by the name that it is installed with, and the checkout's own code says `ops`. One folder under
two names would be two packages, whose classes do not know each other.
"""

import importlib
import pkgutil
import sys

import ops

sys.modules["sparse_topk"] = ops
for module in pkgutil.walk_packages(ops.__path__, "ops."):
    sys.modules["sparse_topk" + module.name.removeprefix("ops")] = importlib.import_module(module.name)
