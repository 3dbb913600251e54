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

NEARWALK, WORKLOAD, MODULES, HOW, WALKS = sys.argv[1:6]
PTDUMP_KO = sys.argv[6] if len(sys.argv) > 6 else None
# For later kernels there is none.
HAS_MODULE = os.uname().release.startswith(("6.1.", "6.12."))
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


def remove_group():
    """A process leaves its group a moment after it has been waited for."""
    while True:
        try:
            os.rmdir(GROUP)
            return
        except OSError:
            time.sleep(0.1)


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
    remove_group()


@contextlib.contextmanager
def running(*args, cpus="0"):
    """A process of its own group that goes on."""
    os.makedirs(GROUP, exist_ok=True)
    with subprocess.Popen(["taskset", "-c", cpus, WORKLOAD, *args],
                          stdin=subprocess.PIPE) as process:
        write(f"{GROUP}/cgroup.procs", str(process.pid))
        try:
            until = time.monotonic() + 120
            while "sparse=1200" in args and vm_pte(process.pid) < 2400:
                assert time.monotonic() < until
                time.sleep(0.5)
            yield process.pid
        finally:
            process.kill()
    remove_group()


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
    with subprocess.Popen([sys.executable, "-c", HALF]) as process:
        os.makedirs(GROUP, exist_ok=True)
        write(f"{GROUP}/cgroup.procs", str(process.pid))
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
