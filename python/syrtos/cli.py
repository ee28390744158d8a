"""The command ``syrtos``; jobs are started by ``syrtosrun``."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

__all__ = ["main"]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a subcommand and return the exit code.

    Parameters
    ----------
    arguments : sequence of str, optional
        Command line without the program's name; ``sys.argv`` if not given.
    """
    parser = argparse.ArgumentParser(
        prog="syrtos",
        description="Tools of Syrtos. Jobs are started by `syrtosrun -np N python script.py`.",
    )
    parser.add_argument("-v", "--version", action="store_true", help="print the version and exit")
    commands = parser.add_subparsers(dest="command", metavar="command")
    commands.add_parser("doctor", help="show what is built in, what is missing and why")
    options = parser.parse_args(arguments)
    if options.version:
        import syrtos

        print(f"syrtos {syrtos.__version__}")
        return 0
    if options.command == "doctor":
        from syrtos import doctor

        return doctor.main([])
    parser.print_help()
    return 2
