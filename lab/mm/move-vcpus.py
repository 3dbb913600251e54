#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-or-later
# In the lab VM: moves the threads of a group's processes that have virtual machines
# from node to node, at random, every 50 ms, and reads the checks of the virtual
# machines' nested page tables meanwhile. Usage: move-vcpus.py GROUP REPORT
#
# When it is ready, and on each SIGUSR1, it makes the file REPORT: how often it moved a
# thread, how many threads, and how often it read a check since the last one, and what
# checks found. Threads that have CPUs of their own choice are left alone. A thread that
# was made after its maker was moved has the maker's CPUs, which are nobody's choice.
import glob
import os
import random
import signal
import sys
import time

MACHINES = "/sys/kernel/debug/kvm/*-*"


def cpus(text):
    found = set()
    for part in text.strip().split(","):
        first, _, last = part.partition("-")
        if first:
            found.update(range(int(first), int(last or first) + 1))
    return found


def read(path):
    with open(path, encoding="ascii") as file:
        return file.read()


def nodes():
    lists = (read(path) for path in glob.glob("/sys/devices/system/node/node*/cpulist"))
    return [found for found in map(cpus, lists) if found]


class Mover:
    def __init__(self, group):
        self.group = group
        self.nodes = nodes()
        self.all = set().union(*self.nodes)
        self.given = {}
        self.begin()

    def begin(self):
        self.moves = self.checks = 0
        self.threads = set()
        self.bad = []

    def report(self, path):
        with open(f"{path}.new", "w", encoding="ascii") as file:
            file.write(f"moved {self.moves} times, {len(self.threads)} threads, "
                       f"{self.checks} checks, {len(self.bad)} with violations\n")
            file.write("".join(self.bad[:4]))
        os.rename(f"{path}.new", path)
        self.begin()

    def machines(self):
        """The group's virtual machines, as (pid, directory)."""
        pids = set(read(f"{self.group}/cgroup.procs").split())
        found = ((os.path.basename(path).split("-")[0], path) for path in glob.glob(MACHINES))
        return [(pid, path) for pid, path in found if pid in pids]

    def move(self):
        for pid in {pid for pid, _ in self.machines()}:
            for tid in map(int, os.listdir(f"/proc/{pid}/task")):
                given = self.given.setdefault(pid, [self.all])
                if os.sched_getaffinity(tid) not in given:
                    continue
                node = random.choice(self.nodes)
                if node not in given:
                    given.append(node)
                os.sched_setaffinity(tid, node)
                self.moves += 1
                self.threads.add(tid)

    def check(self):
        for _, path in self.machines():
            try:
                text = read(f"{path}/pgtable_repl_check")
            except OSError:
                continue
            self.checks += 1
            if not text.startswith("violations 0\n"):
                self.bad.append(text)


def main():
    asked = [True]
    signal.signal(signal.SIGUSR1, lambda *_: asked.append(True))
    mover = Mover(sys.argv[1])
    turn = 0
    while True:
        if asked:
            asked.clear()
            mover.report(sys.argv[2])
        try:
            mover.move()
        except (FileNotFoundError, ProcessLookupError):
            # A thread that ended: the others come next time.
            pass
        if turn % 10 == 0:
            mover.check()
        turn += 1
        time.sleep(0.05)


main()
