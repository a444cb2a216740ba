"""What the loaded libraries were built from."""

import json
from typing import Any

from thunderkittens import _C

BUILD: dict[str, Any] = json.loads(_C.build_info())
__version__: str = BUILD["version"]
