import sys

from demos.serve.serve import main

sys.exit(main())
