import sys

from demos.generate.generate import main

sys.exit(main())
