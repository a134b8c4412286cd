"""The command `tenon` of an installed wheel: runs the program next to the library."""

from __future__ import annotations

import os
import pathlib
import signal
import sys


def main() -> None:
    program = pathlib.Path(__file__).parent / "bin" / "tenon"
    for ignored_by_python in (signal.SIGPIPE, signal.SIGXFSZ):  # the program would inherit that
        signal.signal(ignored_by_python, signal.SIG_DFL)
    try:
        os.execv(program, ["tenon", *sys.argv[1:]])
    except OSError as error:
        sys.exit(f"tenon: error: cannot run {program}: {error.strerror}")
