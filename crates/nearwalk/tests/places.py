#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""Two pieces of memory whose pages can change places, and what becomes of them.

places.py: 2 MiB of base pages on node 0 and as many on node 1, two huge pages on each,
and 2 MiB of shared memory. Says where they are, in a line each of
"NAME FROM-TO". Then it reads lines: after "shuffle" base pages are other ones, in
random order, and after another line it compares what all hold.

places.py PID: reads such lines, and prints in how many contiguous regions each lies, as
JSON. Another process does that: the memory of the first one stays as it is.
"""

import array
import ctypes
import json
import mmap
import os
import random
import sys

libc = ctypes.CDLL(None, use_errno=True)
MPOL_BIND, SYS_MBIND = 2, 237
PAGE, HUGE = 4096, 2 << 20
PRESENT, FRAME = 1 << 63, (1 << 55) - 1


def regions(pagemap, begin, end):
    entries = array.array("Q", os.pread(pagemap, (end - begin) // PAGE * 8, begin // PAGE * 8))
    frames = [entry & FRAME if entry & PRESENT else 0 for entry in entries]
    if len(frames) != (end - begin) // PAGE or not all(frames):
        sys.exit(f"{begin:x}-{end:x}: not all of it is there, or is seen")
    return 1 + sum(one + 1 != other for one, other in zip(frames, frames[1:]))


def count(pid):
    pagemap = os.open(f"/proc/{pid}/pagemap", os.O_RDONLY)
    lines = [line.split() for line in sys.stdin]
    places = {words[0]: words[1].split("-") for words in lines if len(words) == 2}
    print(json.dumps({name: regions(pagemap, int(begin, 16), int(end, 16))
                      for name, (begin, end) in places.items()}))


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


def shuffle(memory, _, skip, put):
    memory.madvise(mmap.MADV_DONTNEED, skip, len(put))
    pages = list(range(0, len(put), PAGE))
    random.Random(1).shuffle(pages)
    for at in pages:
        memory[skip + at : skip + at + PAGE] = put[at : at + PAGE]


if len(sys.argv) > 1:
    count(sys.argv[1])
    sys.exit()
parts = [
    mapped("a", 2 << 20, 0, False),
    mapped("b", 2 << 20, 1, False),
    mapped("huge_a", 2 * HUGE, 0, True),
    mapped("huge_b", 2 * HUGE, 1, True),
    mapped("shared", 2 << 20, 0, False, mmap.MAP_SHARED),
]
print("filled", flush=True)
while sys.stdin.readline() == "shuffle\n":
    shuffle(*parts[0])
    shuffle(*parts[1])
    print("shuffled", flush=True)
same = sum(memory[skip : skip + len(put)] == put for memory, _, skip, put in parts)
print(f"{same} of {len(parts)} are the same", flush=True)
