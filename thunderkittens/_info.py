"""What the loaded libraries were built from."""

import json

from thunderkittens import _C

BUILD: dict = json.loads(_C.build_info())
__version__: str = BUILD["version"]
