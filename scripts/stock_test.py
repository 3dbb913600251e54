#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""Checks what Nearwalk answers on a kernel as a distribution ships it.

    stock_test.py NEARWALK WORKLOAD MODULES HOW WALKS [PTDUMP_KO]

Runs as root in a VM with several nodes. MODULES is the kernel's
lib/modules/RELEASE, HOW what it was booted with: plain, la57 or pti, WALKS how
often a busy process is looked at. On 6.1 and 6.12 what BPF reads is also
compared with what the module PTDUMP_KO reads. Prints a line for each check, as
TAP.
"""

import contextlib
import ctypes
import json
import os
import re
import signal
import struct
import subprocess
import sys
import time

from stock_guest import (GROUP, HAS_MODULE, HOW, NEARWALK, WALKS, WORKLOAD, insmod,
                         join, nearwalk, read, running, vm_pte, workload, write)
from stock_tables import (HINT, PAGE, PROTNONE, SWAP, by_level, by_node, check_frames,
                          check_module, check_pagemap, counted_by_node, leaves,
                          memory_ranges, numa_stat, set_aside, snapshot, snapshots)

MIXTURE = ("small=12", "thp=16", "hugezero=8", "hugetlb=8", "shared=4",
           "protnone=4", "zero=4", "swap=8", "sparse=20")


def test_it_was_booted_as_asked():
    flags = re.search(r"^flags.*", read("/proc/cpuinfo"), re.M).group(0).split()
    isolated = "pti" in flags
    assert ("la57" in flags) == (HOW == "la57"), flags
    assert isolated == (HOW == "pti"), flags
    with workload("small=1") as pid:
        shown = json.loads(nearwalk("dump", "--json", str(pid)).stdout)
        levels = len(shown["trees"][0]["levels"])
        assert levels == (5 if HOW == "la57" else 4), levels


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
        on_nodes = sum(counted_by_node(tables).values())
        total = sum(numa_stat().values())
        assert on_nodes + huge + zero == total, (on_nodes, huge, zero, total)
        return f"{entries} entries, 0 differ; {counted} tables + " \
            f"{huge + zero} set aside = VmPTE, {total} in memory.numa_stat"


def test_nodes_are_those_of_the_group():
    with workload("small=24", "shared=4", "spread=32", "sparse=40") as pid:
        _, tables = snapshot(pid)
        found, told = counted_by_node(tables), numa_stat()
        assert found == told, (found, told, by_level(tables))
        assert len(found) == 4, found
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
    with workload(*MIXTURE) as pid:
        _, by_bpf = snapshot(pid, "--reader", "bpf")
        check_module(pid, by_bpf)
    return f"{len(by_bpf)} tables"


BALANCING = "/sys/kernel/debug/sched/numa_balancing"


def stop(pid):
    os.kill(pid, signal.SIGSTOP)
    for task in os.listdir(f"/proc/{pid}/task"):
        while "State:\tT" not in read(f"/proc/{pid}/task/{task}/status"):
            time.sleep(0.01)


def hints_made(pid):
    """Stops the process as soon as it has hints of both sizes."""
    until = time.monotonic() + 60
    while True:
        stop(pid)
        _, tables = snapshot(pid, "--reader", "bpf")
        sizes = [size for _, size, flags, _ in leaves(tables) if flags & 7 == HINT]
        small, huge = sizes.count(1 << 12), sizes.count(2 << 20)
        closed = sum(1 for _, _, flags, _ in leaves(tables) if flags & 7 == PROTNONE)
        if small >= 1024 and huge and closed == 512:
            return tables, small, huge, closed
        assert time.monotonic() < until, (small, huge, closed)
        os.kill(pid, signal.SIGCONT)
        time.sleep(0.2)


def test_hints_are_told_apart():
    """Entries that NUMA balancing took away from a process that is busy with other
    memory: nobody faults on them before it is stopped."""
    if not os.path.exists(BALANCING):
        subprocess.run(["mount", "-t", "debugfs", "d", "/sys/kernel/debug"], check=True)
    for name in ("scan_delay_ms", "scan_period_min_ms"):
        write(f"{BALANCING}/{name}", "10")
    write("/proc/sys/kernel/numa_balancing", "1")
    try:
        with running("small=8", "thp=4", "protnone=2", "small=1", "busy=600",
                     cpus="0,2") as pid:
            tables, small, huge, closed = hints_made(pid)
            entries = check_pagemap(pid, tables)
            if HAS_MODULE:
                check_module(pid, tables)
    finally:
        write("/proc/sys/kernel/numa_balancing", "0")
    return f"{small} hints of 4 KiB and {huge} of 2 MiB beside {closed} entries of " \
        f"PROT_NONE; {entries} entries, 0 differ from pagemap" \
        + (", none from the module" if HAS_MODULE else "")


def test_a_busy_process_keeps_the_order():
    """It maps, moves, collapses, forks and unmaps; its children exit. Now and
    then it exits itself, and another is looked at."""
    walks, ranges = int(WALKS), memory_ranges()
    done = lost = frames = 0
    while done < walks:
        with subprocess.Popen(["taskset", "-c", "0,4", WORKLOAD, "small=4", "turmoil=4",
                               "turmoil=8", "churn=4"], stdin=subprocess.PIPE,
                              stdout=subprocess.PIPE) as process:
            process.stdout.readline()
            # The reader refuses a stream that is out of order.
            nearwalk("dump", "--every", "10ms", "--count", "20", "--raw", "/tmp/raw",
                     str(process.pid))
            with open("/tmp/raw", "rb") as file:
                for _, tables in snapshots(file.read()):
                    frames += check_frames(tables, ranges)
                    done += 1
            with subprocess.Popen([NEARWALK, "dump", "--json", "--every", "10ms",
                                   str(process.pid)], stdout=subprocess.PIPE,
                                  stderr=subprocess.PIPE, text=True) as walk:
                if done // 20 % 2:
                    # Later it is one of many that is cut short.
                    walk.stdout.readline()
                time.sleep(0.01 * (done // 20))
                process.kill()
                said = walk.communicate()[1]
            assert walk.returncode in (0, 1), (walk.returncode, said)
            assert said.count("\n") == 1 and "exited" in said, said
            lost += walk.returncode
    return f"{done} walks, {frames} frames, all of them memory; " \
        f"of {done // 20} that were killed meanwhile {lost} before there was a snapshot"


def test_two_capabilities_are_enough():
    with workload("small=1") as pid:
        for caps, status in (("+bpf,+perfmon", 0), ("+bpf", 3)):
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


def forbid_bpf():
    """A seccomp filter, as containers have: bpf() fails with EPERM."""
    libc = ctypes.CDLL(None, use_errno=True)
    steps = [(0x20, 0, 0, 0), (0x15, 0, 1, 321), (0x06, 0, 0, 0x00050001),
             (0x06, 0, 0, 0x7FFF0000)]
    code = ctypes.create_string_buffer(b"".join(struct.pack("<HBBI", *step)
                                                for step in steps))
    program = struct.pack("<HxxxxxxQ", len(steps), ctypes.addressof(code))
    assert libc.prctl(38, 1, 0, 0, 0) == 0
    assert libc.prctl(22, 2, program, 0, 0) == 0, ctypes.get_errno()


def test_a_seccomp_filter_is_named():
    with workload("small=1") as pid:
        for args, status in ((("locality", str(pid)), 3), (("advise", "--seconds", "0.5"), 0)):
            done = subprocess.run([NEARWALK, *args], capture_output=True, text=True,
                                  check=False, preexec_fn=forbid_bpf)
            assert done.returncode == status, (args, done.stdout, done.stderr)
            if status:
                said = done.stderr
                assert "seccomp" in said and said.count("\n") == 1, said


def counted(recording, moment):
    """CPU time of the group by CPU, and all of it, as they were recorded."""
    at = f"{recording}/{moment}{GROUP}"
    lines = read(f"{at}/nearwalk.cpu_time").splitlines()
    by_cpu = {int(cpu): int(ns) for cpu, ns in map(str.split, lines)}
    return by_cpu, int(read(f"{at}/cpu.stat").split()[1])


def advice(recording):
    shown = json.loads(nearwalk("advise", "--json", "--from", recording).stdout)
    found = {given["name"]: given for given in shown["inputs"]}["cpu_time"]
    return found["value"], found["source"]


def test_cpu_time_of_groups_is_what_the_kernel_counts():
    below = f"{GROUP}/below"
    with running("small=2", "busy=600", cpus="0-2") as pid:
        os.makedirs(below)
        with subprocess.Popen(["taskset", "-c", "6", "sh", "-c",
                               f"echo $$ >{below}/cgroup.procs; while :; do :; done"]
                              ) as other:
            time.sleep(2)
            nearwalk("advise", "--seconds", "4", "--cgroup", "stock", "--record", "/tmp/runs")
            for each in (pid, other.pid):
                os.kill(each, signal.SIGSTOP)
            time.sleep(1)
            nearwalk("advise", "--seconds", "1", "--cgroup", "stock", "--record", "/tmp/stopped")
            other.kill()
        os.rmdir(below)
    moments = sorted(int(name) for name in os.listdir("/tmp/stopped") if name.isdigit())
    told = 0
    for moment in moments:
        if os.path.exists(f"/tmp/stopped/{moment}{GROUP}/nearwalk.cpu_time"):
            by_cpu, usage = counted("/tmp/stopped", moment)
            assert sum(by_cpu.values()) // 1000 == usage, (by_cpu, usage)
            assert {0, 1, 2, 6} <= by_cpu.keys(), by_cpu
            told += 1
    assert told >= 2, moments
    exact, how = advice("/tmp/runs")
    assert how == "counted", how
    for name in os.listdir("/tmp/runs"):
        with contextlib.suppress(OSError):
            os.remove(f"/tmp/runs/{name}{GROUP}/nearwalk.cpu_time")
    sampled, how = advice("/tmp/runs")
    assert how == "sampled", how
    apart = max(abs(one - other) for one, other in zip(exact, sampled))
    assert apart <= 0.03, (exact, sampled)
    return f"{sum(by_cpu.values())} ns by CPU, cpu.stat {usage} us; " \
        f"shares {exact} counted, {sampled} sampled"


def tmux(*args):
    return subprocess.run(["tmux", "-L", "nearwalk", *args], capture_output=True,
                          text=True, check=True).stdout


def screen(text, seconds=60):
    """What is on the screen, as soon as text is."""
    until = time.monotonic() + seconds
    while text not in (shown := tmux("capture-pane", "-p", "-t", "top")):
        assert time.monotonic() < until, f"no {text!r} in\n{shown}"
        time.sleep(0.2)
    return shown


# Half of a CPU: not idle, and the rest of the machine is not kept from its work.
HALF = """
import time
while True:
    until = time.monotonic() + 0.02
    while time.monotonic() < until:
        pass
    time.sleep(0.02)
"""


def test_top_in_a_terminal():
    os.environ.pop("TMUX", None)
    os.makedirs(GROUP, exist_ok=True)
    with subprocess.Popen([sys.executable, "-c", HALF], preexec_fn=join) as process:
        tmux("new-session", "-d", "-s", "top", "-x", "120", "-y", "40",
             "stty -g >/tmp/before; " + NEARWALK + " top; status=$?; "
             "stty -g >/tmp/after; echo status $status; exec cat")
        try:
            shown = screen("stock")
            assert "NAME" in shown and "%N3" in shown, shown
            tmux("resize-window", "-t", "top", "-x", "80", "-y", "24")
            screen("MAY BE")
            tmux("send-keys", "-t", "top", "s")
            tmux("resize-window", "-t", "top", "-x", "40", "-y", "5")
            screen("60")
            tmux("resize-window", "-t", "top", "-x", "200", "-y", "50")
            screen("stock")
            pid = subprocess.run(["pgrep", "-x", "nearwalk"], capture_output=True,
                                 text=True, check=True).stdout
            os.kill(int(pid), signal.SIGTERM)
            screen("status 143")
            assert read("/tmp/before") == read("/tmp/after")
            shown = tmux("display-message", "-p", "-t", "top", "#{alternate_on} #{cursor_flag}")
            assert shown.split() == ["0", "1"], shown
        finally:
            tmux("kill-server")
            process.kill()


def test_lockdown():
    path = "/sys/kernel/security/lockdown"
    if not os.path.exists(path):
        subprocess.run(["mount", "-t", "securityfs", "s",
                        "/sys/kernel/security"], check=True)
    with workload("small=1") as pid:
        write(path, "integrity")
        nearwalk("locality", str(pid))
        write(path, "confidentiality")
        said = nearwalk("locality", str(pid), status=3).stderr
        assert "lockdown=integrity" in said and said.count("\n") == 1, said
    # What needs no rights is answered all the same, by sampling.
    with running("small=2", "sparse=1200", "busy=600") as pid:
        subprocess.run(["taskset", "-a", "-p", "-c", "6", str(pid)], check=True,
                       stdout=subprocess.DEVNULL)
        host = nearwalk("advise", "--seconds", "2").stdout
        assert re.search(r"\n +stock .* certain", host), host
        assert "CPU time: sampled" in host, host
        one = nearwalk("advise", "--seconds", "1", str(pid)).stdout
        assert "verdict   measure" in one and "lockdown=integrity" in one, one


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
    if not HAS_MODULE:
        tests = [found for found in tests if found[1] is not test_module_reads_the_same]
    print(f"1..{len(tests)}")
    for number, (name, test) in enumerate(tests, 1):
        try:
            said = test()
            print(f"ok {number} {name}", flush=True)
            if said:
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
