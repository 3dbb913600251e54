#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""Holds memory, and says at the end whether it still is what was put there.

holder.py MIB: fills MIB of huge pages, says so in a line, and when it can read a
line itself compares them.
"""

import mmap
import os
import sys

mib = int(sys.argv[1])
memory = mmap.mmap(-1, mib << 20, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
memory.madvise(mmap.MADV_HUGEPAGE)
put = [os.urandom(1 << 20) for _ in range(mib)]
for index in range(mib):
    memory[index << 20 : (index + 1) << 20] = put[index]
print("filled", flush=True)
sys.stdin.readline()
same = sum(memory[i << 20 : (i + 1) << 20] == put[i] for i in range(mib))
print(f"{same} of {mib} MiB are the same", flush=True)
