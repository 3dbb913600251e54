#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only
"""Tests of the dump module on a running kernel; needs root and /proc.

    test_ptdump.py NEARWALK WORKLOAD [MODULE]

NEARWALK is the nearwalk program, WORKLOAD the built workload.c, MODULE the
module to load if it is not loaded. Prints a line for each test, as TAP; fails
when one of them does. Tests whose means are missing say so and are skipped;
an unused zram device is made swap space.
"""

import errno
import fcntl
import os
import signal
import struct
import sys
import threading
import time

sys.dont_write_bytecode = True

from ptdump import (  # noqa: E402 pylint: disable=wrong-import-position
    DEVICE, IOC_VERSION, MODULE, PROGRAMS, Skip, begin, check, check_replicas,
    compare, dump, dumped_pages, failure, free_kb, in_child, in_threads, load,
    log_complaints, migrate_pages, need_swap, parse, read, read_all, replicate,
    saved, setting, syscall, table_pages, total, workload)


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


def test_migrated_pages():
    with workload("small=32") as process:
        before = saved(process.pid)
        nodes = [n["node"] for n in dump(process.pid)["nodes"] if n["memory"]]
        if len(nodes) < 2:
            raise Skip("there is only one node with memory")
        source, target = nodes[:2]
        migrate_pages(process.pid, source, target)
        first, second = compare(before, saved(process.pid))
        check(process.pid)

        moves = second["changes"]["page_moves"][0]
        assert moves["size"] == 4096
        mine = moves["matrix"][source][target]
        assert mine == moves["migrated"] >= 32 * 256 // len(nodes)
        # Page tables stay where they are: that is what Nearwalk is for.
        assert second["changes"]["table_moves"]["migrated"] == 0
        assert not second["changes"]["tables"]
        counts = [dumped_pages(s)[target] for s in (first, second)]
        assert counts[1] - counts[0] == mine


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


def test_a_snapshot_may_be_started_over():
    with workload("scattered=64") as process, \
            open(DEVICE, "rb", buffering=0) as file:
        begin(file.fileno(), os.getpid())
        os.read(file.fileno(), 100)
        begin(file.fileno(), process.pid)
        snapshot = parse(read_all(file.fileno()))
        assert snapshot["complete"] and snapshot["pid"] == process.pid


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
    def unload():
        delete_module = 176
        return failure(syscall, delete_module, MODULE.encode(), os.O_NONBLOCK)

    with open(DEVICE, "rb", buffering=0) as file:
        begin(file.fileno(), os.getpid())
        os.read(file.fileno(), 10)
        assert unload() == errno.EWOULDBLOCK
    assert unload() == 0
    assert not os.path.exists(DEVICE)
    load()
    assert dump(os.getpid())["complete"]


def main():
    failed = 0
    load()
    known = set(log_complaints())
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
            complaints = [c for c in log_complaints() if c not in known]
            if complaints:
                failed += 1
                known.update(complaints)
                outcome = f"not ok {number} {name}: kernel log: {complaints}"
            print(outcome, flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    if len(sys.argv) not in (3, 4):
        sys.exit(__doc__)
    PROGRAMS.nearwalk, PROGRAMS.workload, PROGRAMS.module = \
        (*sys.argv[1:], None)[:3]
    sys.exit(main())
