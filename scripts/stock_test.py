#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""Checks `nearwalk dump` by BPF on a kernel as a distribution ships it.

    stock_test.py NEARWALK WORKLOAD MODULES [PTDUMP_KO]

Runs as root in a VM with several nodes. MODULES is the kernel's
lib/modules/RELEASE; with PTDUMP_KO what BPF reads is also compared with what
the module reads. Prints a line for each check, as TAP.
"""

import contextlib
import json
import os
import re
import signal
import struct
import subprocess
import sys
import time

NEARWALK, WORKLOAD, MODULES = sys.argv[1:4]
PTDUMP_KO = sys.argv[4] if len(sys.argv) > 4 else None
GROUP = "/sys/fs/cgroup/stock"
TABLE, PAGE, HINT, PROTNONE, SWAP, MIGRATION, OTHER = range(7)
SPECIAL = 0x80


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


@contextlib.contextmanager
def workload(*args):
    """A process of its own group, stopped."""
    os.makedirs(GROUP, exist_ok=True)

    def join():
        write(f"{GROUP}/cgroup.procs", str(os.getpid()))

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
    while True:
        try:
            os.rmdir(GROUP)
            return
        except OSError:
            time.sleep(0.1)


def nearwalk(*args, status=0):
    done = subprocess.run([NEARWALK, *args], capture_output=True, text=True,
                          check=False)
    assert done.returncode == status, (args, done.returncode, done.stderr)
    return done


def snapshot(pid, *args):
    nearwalk("dump", "--raw", "/tmp/raw", *args, str(pid))
    with open("/tmp/raw", "rb") as file:
        return parse(file.read())


def parse(data):
    """The header's flags, tables and end of a stream."""
    size, = struct.unpack_from("<I", data, 16)
    flags, = struct.unpack_from("<I", data, 24)
    tables, at, end = [], size, None
    while at < len(data):
        kind, length = struct.unpack_from("<BH", data, at)
        payload = data[at + 3:at + 3 + length]
        at += 3 + length
        if kind == 3:
            tables.append(table(payload))
        elif kind == 4:
            end = payload[0]
    assert end == 0, "the process exited"
    return flags, tables


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


def by_node(tables, below=4):
    counts = {}
    for level, _, _, node, _ in tables:
        if level < below:
            counts[node - 1] = counts.get(node - 1, 0) + 1
    return counts


# Linux 6.1 counts tables of level 3 for the process, but on no node.
BELOW = 3 if os.uname().release.startswith("6.1.") else 4


def by_level(tables):
    return [sum(1 for found in tables if found[0] == level)
            for level in (1, 2, 3)]


def numa_stat():
    # Counters reach the group within two seconds.
    time.sleep(3)
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


def vm_pte(pid):
    status = read(f"/proc/{pid}/status")
    return int(re.search(r"VmPTE:\s+(\d+)", status).group(1)) // 4


MIXTURE = ("small=12", "thp=16", "hugezero=8", "hugetlb=8", "shared=4",
           "protnone=4", "zero=4", "swap=8", "sparse=20")


def test_entries_are_those_of_pagemap():
    with workload(*MIXTURE) as pid:
        flags, tables = snapshot(pid)
        assert flags & 2, "not read from outside"
        entries = check_pagemap(pid, tables)
        huge, zero = set_aside(pid, tables)
        assert huge == 8 and zero == 4, (huge, zero)
        kinds = {flags & 7 for _, _, flags, _ in leaves(tables)}
        assert {PAGE, PROTNONE, SWAP} <= kinds, kinds
        counted = sum(by_node(tables).values())
        assert counted + huge + zero == vm_pte(pid), \
            (by_level(tables), huge, zero, vm_pte(pid))
        on_nodes = sum(by_node(tables, BELOW).values())
        total = sum(numa_stat().values())
        assert on_nodes + huge + zero == total, (on_nodes, huge, zero, total)
        return f"{entries} entries, 0 differ; {counted} tables + " \
            f"{huge + zero} set aside = VmPTE, {total} in memory.numa_stat"


def test_nodes_are_those_of_the_group():
    with workload("small=24", "shared=4", "sparse=40") as pid:
        _, tables = snapshot(pid)
        found, told = by_node(tables, BELOW), numa_stat()
        assert found == told, (found, told, by_level(tables))
        assert len(found) > 1, found
        return f"tables by node {found}"


def test_fast_names_the_same_tables():
    with workload("small=24", "thp=8", "sparse=40") as pid:
        _, tables = snapshot(pid)
        fast = json.loads(nearwalk("locality", "--json", "--fast",
                                   str(pid)).stdout)
        nodes = {}
        for level, _, _, node, entries in tables:
            size = 2 << 20 if level == 1 else 1 << (12 + 9 * (level - 1))
            count = 1 if level == 1 else sum(
                1 for flags, _, _ in entries.values() if flags & 7 == PAGE)
            nodes[node - 1] = nodes.get(node - 1, 0) + count * size
        for point in fast["locality"]:
            assert point["local"]["bytes_covered"] == nodes.get(point["node"], 0)


def test_module_reads_the_same():
    if not PTDUMP_KO:
        return "# SKIP no module was built for this kernel"
    with workload(*MIXTURE) as pid:
        _, by_bpf = snapshot(pid, "--reader", "bpf")
        flags, by_module = snapshot(pid, "--module", PTDUMP_KO)
        assert not flags & 2, "not read by the module"
        assert len(by_bpf) == len(by_module), (len(by_bpf), len(by_module))
        for mine, other in zip(by_bpf, by_module):
            differ = {i: (mine[4].get(i), other[4].get(i))
                      for i in mine[4].keys() | other[4].keys()
                      if mine[4].get(i) != other[4].get(i)}
            assert mine == other, (mine[:4], other[:4], differ)
    subprocess.run(["/sbin/rmmod", "nearwalk_ptdump"], check=True)
    return f"{len(by_bpf)} tables"


def test_a_busy_process_keeps_the_order():
    with subprocess.Popen([WORKLOAD, "churn=8", "churn=3", "small=8"],
                          stdin=subprocess.PIPE,
                          stdout=subprocess.PIPE) as process:
        process.stdout.readline()
        for _ in range(20):
            # The reader refuses a stream that is out of order.
            shown = nearwalk("dump", "--json", str(process.pid))
            found = json.loads(shown.stdout)
            assert found["complete"]
            for level in found["trees"][0]["levels"]:
                for node in level["nodes"]:
                    assert level["level"] == 1 or not node["entries_no_node"]
        process.kill()


def test_two_capabilities_are_enough():
    with workload("small=1") as pid:
        for caps, status in (("+bpf,+perfmon", 0), ("+bpf", 1)):
            done = subprocess.run(
                ["setpriv", "--reuid=65534", "--clear-groups",
                 f"--inh-caps=-all,{caps}", f"--ambient-caps=-all,{caps}",
                 NEARWALK, "locality", str(pid)],
                capture_output=True, text=True, check=False)
            assert done.returncode == status, done.stderr
        assert "CAP_PERFMON is missing" in done.stderr, done.stderr


# Its first thread ends; the name of a file that it maps is no text.
HEADLESS = r"""
import ctypes, mmap, os, threading, time
name = b"/tmp/nearwalk-caf\xe9-%d" % os.getpid()
file = os.open(name, os.O_RDWR | os.O_CREAT)
os.unlink(name)
os.ftruncate(file, 1 << 20)
named, own = mmap.mmap(file, 1 << 20), mmap.mmap(-1, 4 << 20)
named[:], own[:] = b"x" * (1 << 20), b"y" * (4 << 20)
threading.Thread(target=time.sleep, args=(600,)).start()
ctypes.CDLL(None).syscall(60, 0)
"""


def test_regions_are_told_apart_by_mapping():
    with subprocess.Popen([sys.executable, "-c", HEADLESS]) as process:
        pid = process.pid
        while "\nState:\tZ" not in read(f"/proc/{pid}/status"):
            time.sleep(0.1)
        caps = "+bpf,+perfmon"
        done = subprocess.run(
            ["setpriv", "--reuid=65534", "--clear-groups",
             f"--inh-caps=-all,{caps}", f"--ambient-caps=-all,{caps}",
             NEARWALK, "contiguity", "--json", "--by", "vma", str(pid)],
            capture_output=True, text=True, check=False)
        process.kill()
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    sizes = [group["bytes"] for group in found["groups"]]
    assert 4 << 20 in sizes and sum(sizes) == found["bytes"], found
    assert all(group["start"] for group in found["groups"]), found


def test_bad_subjects_are_named():
    for pid, text in (("2", "kernel thread"), ("4194303", "no process")):
        said = nearwalk("dump", pid, status=1).stderr
        assert text in said and said.count("\n") == 1, said


def test_lockdown():
    path = "/sys/kernel/security/lockdown"
    if not os.path.exists(path):
        subprocess.run(["mount", "-t", "securityfs", "s",
                        "/sys/kernel/security"], check=True)
    with workload("small=1") as pid:
        write(path, "integrity")
        nearwalk("locality", str(pid))
        write(path, "confidentiality")
        said = nearwalk("locality", str(pid), status=1).stderr
        assert "lockdown=integrity" in said and said.count("\n") == 1, said


def main():
    insmod("zram")
    write("/sys/block/zram0/disksize", str(64 << 20))
    subprocess.run(["/sbin/mkswap", "/dev/zram0"], check=True,
                   stdout=subprocess.DEVNULL)
    subprocess.run(["/sbin/swapon", "/dev/zram0"], check=True)
    write("/proc/sys/vm/nr_hugepages", "8")
    write("/proc/sys/kernel/numa_balancing", "0")
    write("/sys/kernel/mm/transparent_hugepage/enabled", "madvise")
    write("/sys/kernel/mm/transparent_hugepage/khugepaged/defrag", "0")
    write("/sys/fs/cgroup/cgroup.subtree_control", "+memory")
    failed = 0
    tests = [(name[5:].replace("_", " "), test)
             for name, test in globals().items() if name.startswith("test_")]
    print(f"1..{len(tests)}")
    for number, (name, test) in enumerate(tests, 1):
        try:
            said = test() or ""
            skip = said if said.startswith("# SKIP") else ""
            print(f"ok {number} {name} {skip}".rstrip(), flush=True)
            if said and not skip:
                print(f"# {said}", flush=True)
        except Exception as error:  # pylint: disable=broad-except
            failed += 1
            print(f"not ok {number} {name}: {type(error).__name__}: {error}",
                  flush=True)
    log = subprocess.run(["dmesg", "-l", "warn,err,crit"], capture_output=True,
                         text=True, check=False).stdout
    bad = re.findall(r".*(?:WARNING: CPU|BUG:|Oops).*", log)
    for line in bad:
        print(f"not ok kernel: {line}")
    return 1 if failed or bad else 0


if __name__ == "__main__":
    sys.exit(main())
