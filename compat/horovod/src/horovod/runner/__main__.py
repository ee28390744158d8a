"""``python -m horovod.runner`` is ``horovodrun``."""

import sys

from horovod.runner.launch import run_commandline

sys.exit(run_commandline())
