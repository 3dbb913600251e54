#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""Makes page tables on one node and runs on another.

walker.py TABLES RUN MIB SECONDS: builds MIB of tables from the CPUs of node
TABLES, says so in a line, and then keeps a CPU of node RUN busy, half of the
time. The tables are of 2 MiB each that map the zero page once, so that they take
no other memory.
"""

import mmap
import os
import sys
import time

tables, run, mib, seconds = (int(word) for word in sys.argv[1:])


def move_to(node):
    with open(f"/sys/devices/system/node/node{node}/cpulist") as cpulist:
        first, _, last = cpulist.read().strip().partition("-")
    os.sched_setaffinity(0, range(int(first), int(last or first) + 1))


MAP_NORESERVE = 0x4000
REACH = 2 << 20

move_to(tables)
count = mib * 256
memory = mmap.mmap(
    -1,
    count * REACH,
    flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | MAP_NORESERVE,
)
memory.madvise(mmap.MADV_NOHUGEPAGE)
for index in range(count):
    memory[index * REACH]
move_to(run)
print(f"tables on node {tables}, running on node {run}", flush=True)
end = time.monotonic() + seconds
while (now := time.monotonic()) < end:
    while time.monotonic() < now + 0.05:
        pass
    time.sleep(0.05)
