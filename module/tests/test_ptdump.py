#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only
"""Tests of the dump module on a running kernel; needs root and /proc.

    test_ptdump.py SPINDLE WORKLOAD [MODULE]

SPINDLE is the spindle program, WORKLOAD the built workload.c, MODULE the
module to load if it is not loaded. Prints a line for each test, as TAP; fails
when one of them does. Tests whose means are missing say so and are skipped;
an unused zram device is made swap space.
"""

import collections
import contextlib
import ctypes
import errno
import fcntl
import json
import os
import re
import signal
import struct
import subprocess
import sys
import tempfile
import threading
import time

DEVICE = "/dev/spindle_ptdump"
MODULE = "spindle_ptdump"
IOC_VERSION = 2 << 30 | 8 << 16 | 0xD9 << 8
IOC_SNAPSHOT = 1 << 30 | 8 << 16 | 0xD9 << 8 | 1
PAGE_KB = 4


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
    with subprocess.Popen([WORKLOAD, *args], stdin=subprocess.PIPE,
                          stdout=subprocess.PIPE) as process:
        try:
            if process.stdout.readline() != b"ready\n":
                raise AssertionError(f"workload {args} did not start")
            yield process
        finally:
            process.kill()


def dump(pid, *args):
    command = [SPINDLE, "dump", "--json", *args]
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
    """What spindle makes of a stream that was read here."""
    with tempfile.NamedTemporaryFile() as file:
        file.write(stream)
        file.flush()
        return dump(None, "--from", file.name)


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

    # Linux counts the page tables that wait for a huge page's split too.
    huge = total(snapshot, size=2 << 20)
    tables = sum(table_pages(snapshot, level) for level in (1, 2, 3))
    tables += table_pages(snapshot, 4) if snapshot["levels"] == 5 else 0
    vm_pte = status_kb(pid, "VmPTE") // PAGE_KB
    at_most = tables + huge
    assert vm_pte <= at_most, f"{vm_pte} pages in VmPTE, {tables} tables seen"
    assert vm_pte >= tables - (1 if snapshot["levels"] == 5 else 0) * \
        table_pages(snapshot, 4), f"{vm_pte} pages in VmPTE, {tables} seen"

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


def test_small_pages():
    with workload("small=64") as process:
        snapshot = check(process.pid)
        with_cpus = [n["node"] for n in snapshot["nodes"] if n["cpus"]]
        assert all(dumped_pages(snapshot)[n] >= 64 * 256 // len(with_cpus)
                   for n in with_cpus)


def test_transparent_huge_pages():
    path = "/sys/kernel/mm/transparent_hugepage/enabled"
    if not os.path.exists(path):
        raise Skip("this kernel has no transparent huge pages")
    with setting(path, "madvise"), workload("thp=64", "small=4") as process:
        snapshot = check(process.pid)
        assert total(snapshot, size=2 << 20, what="data") == 32
    with setting(path, "never"), workload("thp=64") as process:
        assert total(check(process.pid), size=2 << 20) == 0


def test_hugetlb():
    path = "/proc/sys/vm/nr_hugepages"
    if not os.path.exists(path):
        raise Skip("this kernel has no hugetlb")
    with setting(path, "64"):
        if int(read(path)) < 64:
            raise Skip("no memory for 64 huge pages")
        with workload("hugetlb=64") as process:
            assert total(check(process.pid), size=2 << 20) == 32


def test_shared_memory_and_files():
    with workload("shared=16", "file=/proc/self/exe") as process:
        check(process.pid)
    with workload(f"file={sys.executable}") as process:
        assert total(check(process.pid), what="code", size=4096) > 100


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


def test_swap():
    need_swap()
    with workload("swap=32") as process:
        snapshot = check(process.pid)
        swapped = sum(row["entries"] for row in snapshot["not_present"]
                      if row["what"] == "swap")
        assert swapped > 32 * 256 // 2, f"{swapped} pages swapped out"


def test_inaccessible_memory():
    with workload("protnone=16") as process:
        snapshot = check(process.pid)
        assert total(snapshot, state="inaccessible", what="data") == 16 * 256
        assert total(snapshot, state="hint") == 0


def test_zero_page():
    with workload("zero=16") as process:
        assert total(check(process.pid), state="special", size=4096) >= 16 * 256


def test_numa_hints():
    path = "/proc/sys/kernel/numa_balancing"
    if not os.path.exists(path):
        raise Skip("this kernel has no NUMA balancing")
    # The scanner runs in the process's own time, so it rests with it. Hints
    # stay where the process does not come back: not in the last MB.
    with setting(path, "1"), \
            workload("small=32", "small=1", "busy=6") as process:
        snapshot = check(process.pid)
        assert total(snapshot, state="hint", what="data") > 0
        assert total(snapshot, state="inaccessible") == 0


def test_sparse_address_space():
    with workload("sparse=4096") as process:
        snapshot = check(process.pid)
        assert total(snapshot, size=4096) >= 4096
        assert table_pages(snapshot, 2) >= 4096
        assert snapshot["stream_bytes"] < 64 * 3 * 4096


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


def test_replicated_page_tables():
    with workload("small=32", "thp=16", "shared=4") as process:
        replicate(process.pid, "eager all")
        snapshot = dump(process.pid)
        usable = [n["node"] for n in snapshot["nodes"]
                  if n["cpus"] and n["memory"]]
        check_replicas(process.pid, usable)
        replicate(process.pid, f"eager {usable[-1]}")
        check_replicas(process.pid, usable[-1:])
        replicate(process.pid, "off")
        assert len(check(process.pid)["trees"]) == 1


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


def test_replication_switched_while_it_is_read():
    done = threading.Event()

    def reader(pid):
        while True:
            assert dump(pid)["complete"]
            if done.is_set():
                return

    with workload("churn=4", "small=32") as process:
        replicate(process.pid, "eager all")
        join = in_threads(3, reader, process.pid)
        for _ in range(10):
            for how in ("off", "eager all", "eager 0"):
                replicate(process.pid, how)
        done.set()
        join()


def test_reads_of_any_size():
    with workload() as process, open(DEVICE, "rb", buffering=0) as file:
        streams = []
        for size in (1, 7, 4096, 1 << 20):
            begin(file.fileno(), process.pid)
            streams.append(read_all(file.fileno(), size))
            assert parse(streams[-1])["complete"]
        # A header's times and the END record differ, tables do not.
        assert len({len(s) // 64 for s in streams}) <= 2


def test_errors():
    with open(DEVICE, "rb", buffering=0) as file:
        version = struct.unpack("HHI", fcntl.ioctl(file, IOC_VERSION, bytes(8)))
        assert version[0] == 1 and version[2] == 0
        assert failure(os.read, file.fileno(), 1) == errno.EINVAL
        assert failure(begin, file.fileno(), 0) == errno.EINVAL
        assert failure(begin, file.fileno(), -1) == errno.EINVAL
        assert failure(begin, file.fileno(), os.getpid(), 1) == errno.EINVAL
        assert failure(begin, file.fileno(), 1 << 22 | 1) == errno.ESRCH
        assert failure(begin, file.fileno(), 2) == errno.ENODATA
        assert failure(fcntl.ioctl, file, 0xD902, bytes(8)) == errno.ENOTTY
        assert failure(os.lseek, file.fileno(), 0, os.SEEK_SET) == errno.ESPIPE

        # A failed start leaves the snapshot before it alone.
        begin(file.fileno(), os.getpid())
        assert failure(begin, file.fileno(), 2) == errno.ENODATA
        assert parse(read_all(file.fileno()))["complete"]

        # Passing the open file to an unprivileged process is no way round.
        assert in_child(lambda: (os.setuid(65534),
                                 failure(begin, file.fileno(), os.getpid()))[1]) \
            == errno.EPERM
    assert in_child(lambda: (os.setuid(65534),
                             failure(os.open, DEVICE, os.O_RDONLY))[1]) \
        == errno.EACCES


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


def test_process_exits_while_it_is_read():
    with open(DEVICE, "rb", buffering=0) as file:
        with workload("scattered=192") as process:
            begin(file.fileno(), process.pid)
            start = os.read(file.fileno(), 4096)
            before = free_kb()
            process.kill()
            process.wait()
        # Not all: what goes to the lists of each CPU does not count as free.
        freed = free_kb() - before
        assert freed > 96 * 1024, f"{freed} kB of 192 MB are free again"
        snapshot = parse(start + read_all(file.fileno()))
        assert not snapshot["complete"]


def free_kb():
    return int(re.search(r"MemFree:\s+(\d+)", read("/proc/meminfo")).group(1))


def test_exec_while_it_is_read():
    with open(DEVICE, "rb", buffering=0) as file:
        with workload("scattered=64") as process:
            begin(file.fileno(), process.pid)
            os.read(file.fileno(), 100)
            begin(file.fileno(), process.pid)
            stream = read_all(file.fileno())
            assert parse(stream)["complete"]


def test_readers_at_once_of_a_busy_process():
    def reader(pid):
        with open(DEVICE, "rb", buffering=0) as file:
            for _ in range(4):
                begin(file.fileno(), pid)
                assert parse(read_all(file.fileno()))["complete"]

    with workload("churn=8", "churn=3", "small=32") as process:
        in_threads(6, reader, process.pid)()


def test_threads_share_a_descriptor():
    with workload("small=32") as process, \
            open(DEVICE, "rb", buffering=0) as file:
        begin(file.fileno(), process.pid)
        in_threads(4, read_all, file.fileno(), 1000)()


def test_killed_reader():
    with workload("small=64") as process:
        for _ in range(10):
            pid = os.fork()
            if pid == 0:
                fd = os.open(DEVICE, os.O_RDONLY)
                while True:
                    begin(fd, process.pid)
                    read_all(fd)
            time.sleep(0.1)
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
        check(process.pid)


def test_unloading():
    libc = ctypes.CDLL(None, use_errno=True)

    def unload():
        if libc.syscall(176, MODULE.encode(), os.O_NONBLOCK) == 0:
            return 0
        return ctypes.get_errno()

    with open(DEVICE, "rb", buffering=0) as file:
        begin(file.fileno(), os.getpid())
        os.read(file.fileno(), 10)
        assert unload() == errno.EWOULDBLOCK
    assert unload() == 0
    assert not os.path.exists(DEVICE)
    load()
    assert dump(os.getpid())["complete"]


def load():
    if MODULE_PATH:
        subprocess.run([SPINDLE, "dump", "--json", "--module", MODULE_PATH,
                        str(os.getpid())], stdout=subprocess.DEVNULL, check=True)
    else:
        dump(os.getpid())


def log_is_clean():
    log = subprocess.run(["dmesg"], capture_output=True, text=True, check=False)
    bad = re.compile(r"BUG:|WARNING:|Oops|INFO: rcu|possible recursive|"
                     r"possible circular|sleeping function|KASAN")
    return [line for line in log.stdout.splitlines() if bad.search(line)]


def main():
    failed = 0
    load()
    known = set(log_is_clean())
    tests = [(name[5:].replace("_", " "), test)
             for name, test in globals().items() if name.startswith("test_")]
    print(f"1..{len(tests)}")
    with setting("/proc/sys/kernel/numa_balancing", "0"):
        for number, (name, test) in enumerate(tests, 1):
            try:
                test()
                outcome = f"ok {number} {name}"
            except Skip as reason:
                outcome = f"ok {number} {name} # SKIP {reason}"
            except Exception as error:  # pylint: disable=broad-except
                failed += 1
                outcome = f"not ok {number} {name}: " \
                    f"{type(error).__name__}: {error}"
            complaints = [c for c in log_is_clean() if c not in known]
            if complaints:
                failed += 1
                known.update(complaints)
                outcome = f"not ok {number} {name}: kernel log: {complaints}"
            print(outcome, flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    if len(sys.argv) not in (3, 4):
        sys.exit(__doc__)
    SPINDLE, WORKLOAD = sys.argv[1:3]
    MODULE_PATH = sys.argv[3] if len(sys.argv) == 4 else None
    sys.exit(main())
