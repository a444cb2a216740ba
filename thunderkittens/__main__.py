"""`python -m thunderkittens`."""

import sys

from thunderkittens.cli import main

sys.exit(main())
