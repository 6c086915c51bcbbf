"""Processes that a test may have left behind."""

import os
import pathlib


def processes_in(folder):
    """Numbers of the processes that work in `folder` and have not ended."""
    found = []
    for process in pathlib.Path("/proc").iterdir():
        try:
            if process.name.isdigit() and os.readlink(process / "cwd") == str(folder) and (process / "cmdline").read_bytes():
                found.append(process.name)
        except OSError:
            pass
    return found
