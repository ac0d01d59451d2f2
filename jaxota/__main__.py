"""`python -m jaxota` is the command `jaxota`."""

import sys

from jaxota.cli import main

sys.exit(main())
