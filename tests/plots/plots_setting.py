"""Shared by the tests of plots: a Python with matplotlib, the program, and the plots' modules on the path."""

import importlib.util
import os
import pathlib
import sys

DISTRIBUTION_PYTHON = "/usr/bin/python3"
if importlib.util.find_spec("matplotlib") is None and sys.executable != DISTRIBUTION_PYTHON:
    os.execv(DISTRIBUTION_PYTHON, [DISTRIBUTION_PYTHON, "-B", *sys.argv])

PROGRAM, SOURCE = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])
sys.path.insert(0, str(SOURCE / "plots"))
