# SPDX-License-Identifier: GPL-2.0-only
"""What the tests of the dump module have in common: the device, the workload,
and what Linux says of a process in other places."""

import collections
import contextlib
import ctypes
import fcntl
import json
import os
import re
import struct
import subprocess
import tempfile
import threading
import types

DEVICE = "/dev/nearwalk_ptdump"
MODULE = "nearwalk_ptdump"
IOC_VERSION = 2 << 30 | 8 << 16 | 0xD9 << 8
IOC_SNAPSHOT = 1 << 30 | 8 << 16 | 0xD9 << 8 | 1
PAGE_KB = 4

# Paths that the tests are called with: nearwalk, workload, module (or None).
PROGRAMS = types.SimpleNamespace()


class Skip(Exception):
    """The machine lacks what a test needs."""


def read(path):
    with open(path, encoding="ascii", errors="replace") as file:
        return file.read()


def write(path, text):
    with open(path, "w", encoding="ascii") as file:
        file.write(text)


@contextlib.contextmanager
def setting(path, value):
    """Sets a tunable for a while."""
    if not os.path.exists(path):
        yield
        return
    before = read(path).strip()
    chosen = re.search(r"\[(\w+)\]", before)
    write(path, value)
    try:
        yield
    finally:
        write(path, chosen.group(1) if chosen else before)


@contextlib.contextmanager
def workload(*args):
    """Runs the workload until it is ready, and ends it afterwards."""
    with subprocess.Popen([PROGRAMS.workload, *args], stdin=subprocess.PIPE,
                          stdout=subprocess.PIPE) as process:
        try:
            if process.stdout.readline() != b"ready\n":
                raise AssertionError(f"workload {args} did not start")
            yield process
        finally:
            process.kill()


def dump(pid, *args):
    command = [PROGRAMS.nearwalk, "dump", "--json", *args]
    if pid is not None:
        command.append(str(pid))
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    return json.loads(result.stdout)


def begin(fd, pid, flags=0):
    fcntl.ioctl(fd, IOC_SNAPSHOT, struct.pack("iI", pid, flags))


def read_all(fd, size=1 << 16):
    chunks = []
    while chunk := os.read(fd, size):
        chunks.append(chunk)
    return b"".join(chunks)


def parse(stream):
    """What nearwalk makes of a stream that was read here."""
    with tempfile.NamedTemporaryFile() as file:
        file.write(stream)
        file.flush()
        return dump(None, "--from", file.name)


def saved(pid):
    """A snapshot as nearwalk saves it."""
    with tempfile.NamedTemporaryFile() as file:
        dump(pid, "--raw", file.name)
        return file.read()


def compare(*streams):
    """What nearwalk makes of snapshots that follow each other."""
    with tempfile.NamedTemporaryFile() as file:
        file.write(b"".join(streams))
        file.flush()
        command = [PROGRAMS.nearwalk, "dump", "--json", "--from", file.name]
        result = subprocess.run(command, capture_output=True, text=True,
                                check=True)
    return [json.loads(line) for line in result.stdout.splitlines()]


def syscall(number, *args):
    """A system call that the C library may not have; raises its error."""
    libc = ctypes.CDLL(None, use_errno=True)
    result = libc.syscall(number, *args)
    if result < 0:
        raise OSError(ctypes.get_errno(), f"system call {number}")
    return result


def migrate_pages(pid, source, target):
    """Moves all memory of a process from one node to another."""
    old, new = (ctypes.c_ulong(1 << node) for node in (source, target))
    syscall(256, pid, 64, ctypes.byref(old), ctypes.byref(new))


def numa_maps(pid):
    """Base pages by node, and by node those of hugetlb, as Linux counts them."""
    pages = collections.Counter()
    for line in read(f"/proc/{pid}/numa_maps").splitlines():
        size = re.search(r"kernelpagesize_kB=(\d+)", line)
        scale = 1
        if size and " huge " in f" {line} ":
            scale = int(size.group(1)) // PAGE_KB
        for node, count in re.findall(r"\bN(\d+)=(\d+)", line):
            pages[int(node)] += int(count) * scale
    return pages


def dumped_pages(snapshot):
    """The same from a snapshot: all but special pages."""
    pages = collections.Counter()
    for row in snapshot["pages"]:
        if row["state"] == "special":
            continue
        for node, count in zip(snapshot["nodes"], row["by_node"]):
            if count:
                pages[node["node"]] += count * row["size"] // 4096
    return pages


def total(snapshot, **want):
    rows = snapshot["pages"]
    return sum(row["total"] for row in rows
               if all(row[key] == value for key, value in want.items()))


def table_pages(snapshot, level):
    levels = snapshot["trees"][0]["levels"]
    return sum(node["tables"] for row in levels if row["level"] == level
               for node in row["nodes"])


def status_kb(pid, key):
    return int(re.search(rf"^{key}:\s+(\d+) kB", read(f"/proc/{pid}/status"),
                         re.M).group(1))


def check(pid):
    """Compares a quiet process with what Linux itself says of it."""
    snapshot = dump(pid)
    assert snapshot["complete"]
    assert dumped_pages(snapshot) == numa_maps(pid), \
        f"{dumped_pages(snapshot)} != numa_maps {numa_maps(pid)}"

    # VmPTE also has the page tables that wait for a huge page's split.
    tables = sum(table_pages(snapshot, level) for level in (1, 2, 3))
    vm_pte = status_kb(pid, "VmPTE") // PAGE_KB
    assert tables <= vm_pte <= tables + total(snapshot, size=2 << 20), \
        f"{vm_pte} pages in VmPTE, {tables} tables seen"

    # Every pointer to a table leads to a table that was listed.
    for upper, lower in zip(snapshot["trees"][0]["levels"],
                            snapshot["trees"][0]["levels"][1:]):
        pointers = sum(sum(node["entries"]) - node["leaf_entries"]
                       for node in upper["nodes"])
        assert pointers == table_pages(snapshot, lower["level"])

    swap = sum(row["entries"] * row["size"] for row in snapshot["not_present"]
               if row["what"] == "swap")
    assert swap // 1024 == status_kb(pid, "VmSwap")
    return snapshot


def need_swap():
    def used():
        return len(read("/proc/swaps").splitlines()) >= 2

    size = "/sys/block/zram0/disksize"
    if not used() and os.path.exists(size) and read(size).strip() == "0":
        write(size, "256M")
        subprocess.run(["/sbin/mkswap", "/dev/zram0"], check=True,
                       stdout=subprocess.DEVNULL)
        subprocess.run(["/sbin/swapon", "/dev/zram0"], check=True)
    if not used():
        raise Skip("no swap space in use, and no unused zram device")


def replicate(pid, how):
    path = f"/proc/{pid}/pgtable_repl"
    if not os.path.exists(path):
        raise Skip("this kernel has no page-table replication")
    write(path, how)


def check_replicas(pid, nodes):
    """Compares the domain trees of a quiet process with its canonical one."""
    snapshot = check(pid)
    assert snapshot["replication"]
    canonical, *trees = snapshot["trees"]
    assert [tree["node"] for tree in trees] == nodes, trees
    for tree in trees:
        for want, have in zip(canonical["levels"], tree["levels"], strict=True):
            tables = sum(node["tables"] for node in want["nodes"])
            local = want["nodes"][tree["node"]]["tables"]
            for node in have["nodes"]:
                here = node["node"] == tree["node"]
                assert node["tables"] == (tables if here else 0)
                # Level 1 tables that lie on the node are not copied.
                links = local if want["level"] == 1 else 0
                assert node["replicas"] == (tables - links if here else 0)
            assert sum(sum(node["entries"]) for node in want["nodes"]) == \
                sum(sum(node["entries"]) for node in have["nodes"])
    for point in snapshot["locality"]:
        assert point["absent"]["entries"] == 0
        own = point["node"] in nodes
        assert (point["tree"] == "domain") == own
        if own:
            assert point["remote"]["entries"] == 0
            assert point["domain"] == point["node"]

    # The kernel counts the pages of its replicas too.
    text = read(f"/proc/{pid}/pgtable_repl")
    counted = sum(int(n) for n in re.findall(r"N\d+=(\d+)", text))
    seen = sum(node["replicas"] for tree in trees for level in tree["levels"]
               for node in level["nodes"])
    # Kernels with page-table isolation have two pages to each root.
    assert counted in (seen, seen + len(trees)), f"{counted} != {seen}"
    return snapshot


def in_threads(count, function, *args):
    """Starts threads; the result waits for them and raises what they raised."""
    errors = []

    def run():
        try:
            function(*args)
        except (OSError, AssertionError) as error:
            errors.append(error)

    threads = [threading.Thread(target=run) for _ in range(count)]
    for thread in threads:
        thread.start()

    def join():
        for thread in threads:
            thread.join()
        assert not errors, errors

    return join


def failure(function, *args):
    """Error number that a call fails with, 0 if it does not."""
    try:
        function(*args)
    except OSError as error:
        return error.errno
    return 0


def in_child(function):
    pid = os.fork()
    if pid == 0:
        os._exit(function())
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def free_kb():
    return int(re.search(r"MemFree:\s+(\d+)", read("/proc/meminfo")).group(1))


def load():
    """Has nearwalk load the module, if it is not loaded."""
    how = ["--module", PROGRAMS.module] if PROGRAMS.module else []
    dump(os.getpid(), *how)


def log_complaints():
    """Lines of the kernel log that say that something is wrong."""
    log = subprocess.run(["dmesg"], capture_output=True, text=True, check=False)
    bad = re.compile(r"BUG:|WARNING:|Oops|INFO: rcu|possible recursive|"
                     r"possible circular|sleeping function|KASAN")
    return [line for line in log.stdout.splitlines() if bad.search(line)]
