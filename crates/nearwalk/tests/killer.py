#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""Kills a trial in one of its phases and waits for what was set before.

killer.py PID PHASE WANTED [ARG...]: starts `nearwalk trial ARG...`, waits until
PHASE is there (a path; `note`, that it has noted something; `built`, that all copies
are made; else text in /proc/PID/pgtable_repl), kills it, and says how long it then took
until mode, nodes and source of PID were WANTED and no note was left. No phase is one
that may be over before it is looked for.
"""

import os
import signal
import subprocess
import sys
import time

NOTES = "/run/nearwalk"
LIMIT = 60

pid, phase, wanted, *words = sys.argv[1:]


def status():
    with open(f"/proc/{pid}/pgtable_repl") as file:
        return file.read()


def setting():
    lines = dict(line.split(":", 1) for line in status().splitlines())
    return " ".join(lines[name].strip() for name in ("mode", "nodes", "source"))


def notes():
    try:
        return os.listdir(NOTES)
    except FileNotFoundError:
        return []


def there():
    if phase.startswith("/"):
        return os.path.exists(phase)
    if phase == "note":
        return any(name.endswith(".json") for name in notes())
    if phase == "built":
        text = status()
        return "eager" in text and "building" not in text
    return phase in status()


def until(what):
    begun = time.monotonic()
    while not what():
        if time.monotonic() - begun > LIMIT:
            sys.exit(f"{phase}: waited for {LIMIT} s; it is {setting()}, notes {notes()}")
        # Whoever is looked for needs the emulator's CPUs.
        time.sleep(0.002)
    return time.monotonic() - begun


with open("/run/trial", "w") as out:
    trial = subprocess.Popen(["nearwalk", "trial", *words], stdout=out, stderr=out)
until(there)
trial.send_signal(signal.SIGKILL)
took = until(lambda: setting() == wanted and not notes())
trial.wait()
print(f"{phase}: back after {1000 * took:.0f} ms: {setting()}", flush=True)
