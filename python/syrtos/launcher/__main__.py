"""``python -m syrtos.launcher`` is ``syrtosrun``."""

import sys

from syrtos.launcher.cli import main

sys.exit(main())
