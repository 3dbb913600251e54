#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""Two pieces of memory whose pages can change places, and what becomes of them.

places.py: 2 MiB of base pages on node 0 and as many on node 1, two huge pages on each,
and 2 MiB of shared memory. Says where they are, in a line each of
"NAME FROM-TO", and when it can read a line itself compares what they hold.
"""

import ctypes
import mmap
import os
import sys

libc = ctypes.CDLL(None, use_errno=True)
MPOL_BIND, SYS_MBIND = 2, 237
HUGE = 2 << 20


def mapped(name, size, node, huge, flags=mmap.MAP_PRIVATE):
    memory = mmap.mmap(-1, size + HUGE, flags=flags | mmap.MAP_ANONYMOUS)
    view = (ctypes.c_char * (size + HUGE)).from_buffer(memory)
    skip = -ctypes.addressof(view) % HUGE
    begin = ctypes.addressof(view) + skip
    nodes = ctypes.c_ulong(1 << node)
    if libc.syscall(SYS_MBIND, ctypes.c_void_p(begin), ctypes.c_ulong(size), MPOL_BIND,
                    ctypes.byref(nodes), ctypes.c_ulong(64), 0):
        sys.exit(os.strerror(ctypes.get_errno()))
    memory.madvise(mmap.MADV_HUGEPAGE if huge else mmap.MADV_NOHUGEPAGE)
    put = os.urandom(size)
    memory[skip : skip + size] = put
    print(f"{name} {begin:x}-{begin + size:x}", flush=True)
    return memory, view, skip, put


parts = [
    mapped("a", 2 << 20, 0, False),
    mapped("b", 2 << 20, 1, False),
    mapped("huge_a", 2 * HUGE, 0, True),
    mapped("huge_b", 2 * HUGE, 1, True),
    mapped("shared", 2 << 20, 0, False, mmap.MAP_SHARED),
]
print("filled", flush=True)
sys.stdin.readline()
same = sum(memory[skip : skip + len(put)] == put for memory, _, skip, put in parts)
print(f"{same} of {len(parts)} are the same", flush=True)
