import sys

from demos.lolcats.lolcats import main

sys.exit(main())
