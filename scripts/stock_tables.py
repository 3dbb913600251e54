# SPDX-License-Identifier: GPL-2.0-or-later
"""Page tables as Nearwalk reads them, and as the kernel tells of them."""

import os
import re
import struct
import subprocess
import time

from stock_guest import GROUP, HOW, PTDUMP_KO, nearwalk, read

TABLE, PAGE, HINT, PROTNONE, SWAP, MIGRATION, OTHER = range(7)
SPECIAL = 0x80


def snapshot(pid, *args):
    nearwalk("dump", "--raw", "/tmp/raw", *args, str(pid))
    with open("/tmp/raw", "rb") as file:
        return parse(file.read())


def parse(data):
    """The header's flags and tables of a stream of one snapshot."""
    (found,) = snapshots(data)
    return found


def snapshots(data):
    """As above, of one that may hold several."""
    at = 0
    while at < len(data):
        flags, = struct.unpack_from("<I", data, at + 24)
        size, = struct.unpack_from("<I", data, at + 16)
        at += size
        tables, end = [], None
        while end is None:
            kind, length = struct.unpack_from("<BH", data, at)
            payload = data[at + 3:at + 3 + length]
            at += 3 + length
            if kind == 3:
                tables.append(table(payload))
            elif kind == 4:
                end = payload[0]
        assert end == 0, "the process exited"
        yield flags, tables


def table(payload):
    at = 0

    def varint():
        nonlocal at
        value = shift = 0
        while True:
            byte = payload[at]
            at += 1
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value

    level, _, _, index, frame, node = (varint() for _ in range(6))
    step = 1 << (9 * (level - 1))
    entries, position, expected, run_flags, run_node = {}, 0, 0, 0, 0
    while at < len(payload):
        head = varint()
        position += varint() if head & 4 else 0
        run_flags = varint() if head & 1 else run_flags
        run_node = varint() if head & 2 else run_node
        if head & 8:
            folded = varint()
            expected += (folded >> 1) ^ -(folded & 1)
        has_frame = run_flags & 7 <= PROTNONE
        for _ in range((head >> 4) + 1):
            entries[position] = (run_flags, run_node if has_frame else 0,
                                 expected if has_frame else 0)
            position += 1
            if has_frame:
                expected += 1 if run_flags & 7 == TABLE else step
    addr = index << (12 + 9 * level)
    return level, addr, frame, node, entries


def leaves(tables):
    for level, addr, _, _, entries in tables:
        size = 1 << (12 + 9 * (level - 1))
        for index, (flags, _, frame) in entries.items():
            if flags & 7 != TABLE:
                yield addr + index * size, size, flags, frame


def check_pagemap(pid, tables):
    """Each page of each mapping, here and there."""
    found = {}
    for addr, size, flags, frame in leaves(tables):
        for page in range(size >> 12):
            found[(addr >> 12) + page] = (flags & 7, frame + page)
    entries = differ = 0
    with open(f"/proc/{pid}/pagemap", "rb") as pagemap:
        for line in read(f"/proc/{pid}/maps").splitlines():
            start, end = (int(x, 16) >> 12
                          for x in line.split()[0].split("-"))
            if start >= 1 << 52 - 12:
                continue
            pagemap.seek(start * 8)
            data = pagemap.read((end - start) * 8)
            for i, (value,) in enumerate(struct.iter_unpack("<Q", data)):
                kind, frame = found.pop(start + i, (None, 0))
                entries += 1
                if value >> 63:
                    # Of frames that are no memory it does not say which.
                    named = value & (1 << 55) - 1
                    good = kind in (PAGE, HINT, PROTNONE) and named in (frame, 0)
                elif value >> 62 & 1:
                    good = kind in (SWAP, MIGRATION)
                else:
                    # Special pages it leaves out.
                    good = kind is None or kind == PAGE
                    entries -= kind is None
                differ += not good
    assert not differ and not found, f"{differ} differ, {len(found)} too many"
    return entries


def by_node(tables, below=4, roots=1):
    """Tables below a level by node; a root is so many pages."""
    counts = {}
    top = max(level for level, *_ in tables)
    for level, _, _, node, _ in tables:
        if level < below:
            pages = roots if level == top else 1
            counts[node - 1] = counts.get(node - 1, 0) + pages
    return counts


def counted_by_node(tables):
    """Those that the kernel counts on nodes."""
    release = os.uname().release
    if release.startswith("6.1."):
        # Those of level 3 it counts for the process alone.
        return by_node(tables, 3)
    if int(release.split(".")[0]) >= 7:
        # All; with page-table isolation a root has a second page.
        return by_node(tables, 6, 2 if HOW == "pti" else 1)
    return by_node(tables)


def by_level(tables):
    return [sum(1 for found in tables if found[0] == level)
            for level in (1, 2, 3)]


def counters_reach_groups():
    """Waits for the kernel to sum up what CPUs have counted. It does that every two
    seconds, by a timer that is deferrable: on a CPU that sleeps it waits until the CPU
    has something else to do."""
    time.sleep(2.5)
    mine = os.sched_getaffinity(0)
    for cpu in mine:
        os.sched_setaffinity(0, {cpu})
        # A few ticks: one of them looks for timers.
        until = time.monotonic() + 0.05
        while time.monotonic() < until:
            pass
    os.sched_setaffinity(0, mine)
    time.sleep(0.5)


def numa_stat():
    counters_reach_groups()
    for line in read(f"{GROUP}/memory.numa_stat").splitlines():
        name, *nodes = line.split()
        if name == "pagetables":
            pairs = (re.match(r"N(\d+)=(\d+)", n).groups() for n in nodes)
            return {int(n): int(b) >> 12 for n, b in pairs if int(b)}
    raise AssertionError("no pagetables in memory.numa_stat")


def set_aside(pid, tables):
    """Tables that wait for the day on which a huge page is split."""
    rollup = read(f"/proc/{pid}/smaps_rollup")
    huge = int(re.search(r"AnonHugePages:\s+(\d+)", rollup).group(1)) // 2048
    zero = sum(1 for _, size, flags, _ in leaves(tables)
               if size == 2 << 20 and flags & SPECIAL)
    return huge, zero


def check_module(pid, by_bpf):
    """What the module reads is the same, record by record."""
    assert PTDUMP_KO, "no module was built for this kernel"
    flags, by_module = snapshot(pid, "--module", PTDUMP_KO)
    assert not flags & 2, "not read by the module"
    assert len(by_bpf) == len(by_module), (len(by_bpf), len(by_module))
    for mine, other in zip(by_bpf, by_module):
        differ = {i: (mine[4].get(i), other[4].get(i))
                  for i in mine[4].keys() | other[4].keys()
                  if mine[4].get(i) != other[4].get(i)}
        assert mine == other, (mine[:4], other[:4], differ)
    subprocess.run(["/sbin/rmmod", "nearwalk_ptdump"], check=True)


def memory_ranges():
    """Frames that are memory, as /proc/iomem has them."""
    found = re.findall(r"^([0-9a-f]+)-([0-9a-f]+) : System RAM", read("/proc/iomem"),
                       re.M)
    return [(int(first, 16) >> 12, int(last, 16) >> 12) for first, last in found]


def check_frames(tables, ranges):
    """All that is walked to or mapped is memory."""
    frames = []
    for _, _, frame, _, entries in tables:
        frames.append(frame)
        frames += [at for flags, _, at in entries.values()
                   if flags & 7 <= PROTNONE]
    for frame in frames:
        assert any(first <= frame <= last for first, last in ranges), hex(frame)
    return len(frames)
