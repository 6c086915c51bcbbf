"""Finds processes that a test left behind."""

import os
import pathlib


def processes_in(folder):
    """The ids of running processes whose working directory is `folder`."""
    found = []
    for process in pathlib.Path("/proc").iterdir():
        try:
            if process.name.isdigit() and os.readlink(process / "cwd") == str(folder) and (process / "cmdline").read_bytes():
                found.append(process.name)
        except OSError:
            pass
    return found
