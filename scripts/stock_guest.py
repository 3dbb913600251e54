# SPDX-License-Identifier: GPL-2.0-or-later
"""What the checks of stock_test.py run, and the words that it was called with."""

import contextlib
import os
import re
import signal
import subprocess
import sys
import time

NEARWALK, WORKLOAD, MODULES, HOW, WALKS = sys.argv[1:6]
PTDUMP_KO = sys.argv[6] if len(sys.argv) > 6 else None
# For later kernels there is none.
HAS_MODULE = os.uname().release.startswith(("6.1.", "6.12."))
GROUP = "/sys/fs/cgroup/stock"


def read(path):
    with open(path, encoding="ascii", errors="replace") as file:
        return file.read()


def write(path, text):
    with open(path, "w", encoding="ascii") as file:
        file.write(text)


def insmod(name):
    release = os.path.basename(MODULES)
    root = MODULES.removesuffix(f"/lib/modules/{release}")
    subprocess.run(["/sbin/modprobe", "-d", root, name], check=True)


def remove_group():
    """A process leaves its group a moment after it has been waited for."""
    while True:
        try:
            os.rmdir(GROUP)
            return
        except OSError:
            time.sleep(0.1)


def join():
    """In the child: tables that a process has before it joins are not counted
    to the group, also when it joins."""
    write(f"{GROUP}/cgroup.procs", str(os.getpid()))


@contextlib.contextmanager
def workload(*args):
    """A process of its own group, stopped."""
    os.makedirs(GROUP, exist_ok=True)
    with subprocess.Popen([WORKLOAD, *args], stdin=subprocess.PIPE,
                          stdout=subprocess.PIPE, preexec_fn=join) as process:
        assert process.stdout.readline() == b"ready\n"
        process.send_signal(signal.SIGSTOP)
        while "State:\tT" not in read(f"/proc/{process.pid}/status"):
            time.sleep(0.01)
        try:
            yield process.pid
        finally:
            process.kill()
    remove_group()


@contextlib.contextmanager
def running(*args, cpus="0"):
    """A process of its own group that goes on."""
    os.makedirs(GROUP, exist_ok=True)
    with subprocess.Popen(["taskset", "-c", cpus, WORKLOAD, *args],
                          stdin=subprocess.PIPE, preexec_fn=join) as process:
        try:
            until = time.monotonic() + 120
            while "sparse=1200" in args and vm_pte(process.pid) < 2400:
                assert time.monotonic() < until
                time.sleep(0.5)
            yield process.pid
        finally:
            process.kill()
    remove_group()


def nearwalk(*args, status=0):
    done = subprocess.run([NEARWALK, *args], capture_output=True, text=True,
                          check=False)
    assert done.returncode == status, (args, done.returncode, done.stderr)
    return done


def vm_pte(pid):
    status = read(f"/proc/{pid}/status")
    return int(re.search(r"VmPTE:\s+(\d+)", status).group(1)) // 4
