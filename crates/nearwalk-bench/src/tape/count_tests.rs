// SPDX-License-Identifier: GPL-2.0-or-later

use super::*;

/// Two vCPUs, on CPUs 1 and 2, and two moves by task 95: the first finds both in the
/// guest, the second one of them only, and a tick has got the other one out.
const TRACE: &str = "\
# tracer: nop
#
# entries-in-buffer/entries-written: 30/30   #P:3
        nearwalk-97      [001] d..1.    10.000100: kvm_exit: vcpu 0 reason interrupt rip 0x800010 info1 0x0 info2 0x0 intr_info 0x0 error_code 0x0
        nearwalk-97      [001] d.h1.    10.000101: csd_function_entry: func=ack_kick, csd=00000000aa
        nearwalk-95      [000] ...1.    10.000200: tracing_mark_write: tape begin 0
        nearwalk-95      [000] ..s1.    10.000210: csd_queue_cpu: cpu=1 callsite=smp_call_function_single+0x1/0x2 func=rcu_exp_handler csd=00000000aa
        nearwalk-95      [000] ..s1.    10.000211: ipi_send_cpu: cpu=1 callsite=smp_call_function_single+0x1/0x2 callback=generic_smp_call_function_single_interrupt+0x0/0x10
        nearwalk-97      [001] d..1.    10.000220: kvm_exit: vcpu 0 reason interrupt rip 0x800010 info1 0x0 info2 0x0 intr_info 0x0 error_code 0x0
        nearwalk-97      [001] d.h1.    10.000221: csd_function_entry: func=rcu_exp_handler, csd=00000000aa
        nearwalk-95      [000] ...1.    10.000300: csd_queue_cpu: cpu=1 callsite=kvm_make_all_cpus_request+0x1/0x2 func=ack_kick csd=00000000aa
        nearwalk-95      [000] ...1.    10.000301: csd_queue_cpu: cpu=2 callsite=kvm_make_all_cpus_request+0x1/0x2 func=ack_kick csd=00000000ab
        nearwalk-95      [000] ...1.    10.000302: ipi_send_cpumask: cpumask=00000000,00000006 callsite=smp_call_function_many_cond+0x1/0x2 callback=generic_smp_call_function_single_interrupt+0x0/0x10
        nearwalk-97      [001] d..1.    10.000310: kvm_exit: vcpu 0 reason interrupt rip 0x800010 info1 0x0 info2 0x0 intr_info 0x0 error_code 0x0
        nearwalk-98      [002] d..1.    10.000311: kvm_exit: vcpu 1 reason interrupt rip 0x800010 info1 0x0 info2 0x0 intr_info 0x0 error_code 0x0
        nearwalk-97      [001] d.h1.    10.000312: csd_function_entry: func=ack_kick, csd=00000000aa
        nearwalk-98      [002] d.h1.    10.000313: csd_function_entry: func=ack_kick, csd=00000000ab
        nearwalk-95      [000] ...1.    10.000400: csd_queue_cpu: cpu=1 callsite=on_each_cpu_cond_mask+0x1/0x2 func=flush_tlb_func csd=00000000aa
        nearwalk-95      [000] ...1.    10.000401: ipi_send_cpu: cpu=1 callsite=smp_call_function_many_cond+0x1/0x2 callback=generic_smp_call_function_single_interrupt+0x0/0x10
        nearwalk-95      [000] d..1.    10.000402: ipi_send_cpu: cpu=2 callsite=ttwu_queue+0x1/0x2 callback=0x0
        nearwalk-97      [001] d.h1.    10.000410: csd_function_entry: func=flush_tlb_func, csd=00000000aa
        nearwalk-98      [002] d..1.    10.000412: kvm_exit: vcpu 1 reason interrupt rip 0x800010 info1 0x0 info2 0x0 intr_info 0x0 error_code 0x0
        nearwalk-98      [002] d.h1.    10.000413: reschedule_entry: vector=253
        nearwalk-95      [000] ...1.    10.000500: tracing_mark_write: tape end 0
        nearwalk-98      [002] d..1.    10.000600: kvm_exit: vcpu 1 reason npf rip 0x800010 info1 0x100000004 info2 0x5abc intr_info 0x0 error_code 0x0
        nearwalk-98      [002] .....    10.000601: kvm_page_fault: vcpu 1 rip 0x800010 address 0x0000000000005abc error_code 0x100000004
        nearwalk-97      [001] .....    10.000602: kvm_page_fault: vcpu 0 rip 0x800010 address 0x0000000000006abc error_code 0x100000004
        nearwalk-95      [000] ...1.    10.000700: tracing_mark_write: tape begin 1
        nearwalk-95      [000] ...1.    10.000701: csd_queue_cpu: cpu=2 callsite=kvm_make_all_cpus_request+0x1/0x2 func=ack_kick csd=00000000ab
        nearwalk-95      [000] ...1.    10.000702: ipi_send_cpu: cpu=2 callsite=smp_call_function_many_cond+0x1/0x2 callback=generic_smp_call_function_single_interrupt+0x0/0x10
        nearwalk-98      [002] d..1.    10.000703: kvm_exit: vcpu 1 reason interrupt rip 0x800010 info1 0x0 info2 0x0 intr_info 0x0 error_code 0x0
        nearwalk-98      [002] d.h1.    10.000704: csd_function_entry: func=ack_kick, csd=00000000ab
        nearwalk-97      [001] d..1.    10.000705: kvm_exit: vcpu 0 reason interrupt rip 0x800010 info1 0x0 info2 0x0 intr_info 0x0 error_code 0x0
        nearwalk-97      [001] d.h1.    10.000705: local_timer_entry: vector=236
        nearwalk-97      [001] d.h1.    10.000705: csd_function_entry: func=ack_kick, csd=00000000aa
        nearwalk-95      [000] ...1.    10.000705: tracing_mark_write: tape end 1
        nearwalk-98      [002] d..1.    10.000710: kvm_exit: vcpu 1 reason interrupt rip 0x800010 info1 0x0 info2 0x0 intr_info 0x0 error_code 0x0
        nearwalk-98      [002] d.h1.    10.000711: local_timer_entry: vector=236
        nearwalk-97      [001] .....    10.000720: kvm_page_fault: vcpu 0 rip 0x800010 address 0x0000000000005010 error_code 0x100000004
        nearwalk-97      [001] .....    10.000725: kvm_page_fault: vcpu 0 rip 0x800010 address 0x0000000000005010 error_code 0x100000004
        nearwalk-97      [001] .....    10.000721: kvm_page_fault: vcpu 0 rip 0x800010 address 0x0000000000007010 error_code 0x100000004
";

/// Of a trace in one piece.
fn count(trace: &str, pager: u32, pages: &[u32]) -> Result<Vec<Counts>, Wrong> {
    let mut counter = Counter::new(pager);
    counter.feed(trace, pages)?;
    counter.end(pages.len())
}

fn first() -> Counts {
    Counts {
        kvm_interrupts: 2,
        process_interrupts: 1,
        kvm_exits: 2,
        // CPU 1 was out still.
        process_exits: 0,
        faults: 2,
        // vCPU 0 had to try twice.
        retries: 1,
        // By RCU, and to reschedule.
        other_exits: 2,
    }
}

fn second() -> Counts {
    Counts {
        kvm_interrupts: 1,
        kvm_exits: 1,
        faults: 1,
        ..Counts::default()
    }
}

#[test]
fn each_move_gets_what_it_brought_about() {
    assert_eq!(count(TRACE, 95, &[5, 7]), Ok(vec![first(), second()]));
    // A page that moves twice: a fault is of the last time.
    let twice = count(TRACE, 95, &[5, 5]).unwrap();
    assert_eq!((twice[0].faults, twice[1].faults), (1, 1));
    assert_eq!((twice[0].retries, twice[1].retries), (0, 1));
    // What others send is of no move.
    let other = count(TRACE, 94, &[5, 7]).unwrap();
    assert_eq!((other[0].interrupts(), other[0].kvm_exits), (0, 2));
    let both = first().interrupts() + second().exits();
    assert_eq!(both, 3 + 2);
}

#[test]
fn pieces_are_one_trace() {
    let lines: Vec<&str> = TRACE.lines().collect();
    let mut counter = Counter::new(95);
    for (index, piece) in lines.chunks(5).enumerate() {
        // The second page is not known before it moves.
        let pages: &[u32] = if index < 4 { &[5] } else { &[5, 7] };
        counter.feed(&piece.join("\n"), pages).unwrap();
    }
    let wrong = counter.feed("words", &[5, 7]).unwrap_err().to_string();
    assert!(wrong.starts_with("line 42 of"), "{wrong}");
    assert_eq!(counter.end(2), Ok(vec![first(), second()]));
}

#[test]
fn names_of_tasks_and_intel_are_understood() {
    let trace = TRACE
        .replace("nearwalk-95", "   a-b c-95")
        .replace("reason interrupt", "reason EXTERNAL_INTERRUPT")
        .replace("func=ack_kick", "func=ack_kick [kvm]");
    // A module's function ends with its module.
    assert_eq!(count(&trace, 95, &[5, 7]), Ok(vec![first(), second()]));
}

#[test]
fn what_is_no_trace_is_refused_by_line() {
    let why = |trace: &str, pages: &[u32]| count(trace, 95, pages).unwrap_err().to_string();
    let with = |line: &str| format!("{TRACE}{line}\n");
    for (line, says) in [
        ("words", "line 42 of the trace is 'words'"),
        (
            "CPU:2 [LOST 12 EVENTS]",
            "line 42 of the trace says 'CPU:2 [LOST 12 EVENTS]': part of it is missing",
        ),
        (
            " nearwalk-97 [001] d..1. 10.0008: kvm_exit: vcpu 0",
            "kvm_exit has 'vcpu 0', without reason ",
        ),
        (
            " nearwalk-97 [001] d..1. 10.0008: kvm_page_fault: vcpu 0 rip 0x1 address here",
            "without address ",
        ),
        (
            " nearwalk-97 [001] d..1. 10.0008: kvm_page_fault: rip 0x1 address 0x5000",
            "without vcpu ",
        ),
        (
            " nearwalk-97 [001] d..1. 10.0008: csd_function_entry: csd=1",
            "without func=",
        ),
        (
            " nearwalk-97 [001] d..1. never: kvm_exit: vcpu 0",
            "not a task, its CPU, a time",
        ),
        (
            " nearwalk-95 [000] d..1. 10.0008: tracing_mark_write: tape begin 2",
            "'tape begin 2' where 'the end' is next",
        ),
    ] {
        let found = why(&with(line), &[5, 7]);
        assert!(found.contains(says), "{line}: {found}");
    }
    let found = why(&TRACE.replace("tape end 0", "tape end 1"), &[5, 7]);
    assert!(
        found.contains("'tape end 1' where 'tape end 0' is next"),
        "{found}"
    );
    assert!(why(TRACE, &[5, 7, 9]).contains("has 2 of 3 moves"));
    let cut = TRACE.replace("tape end 1", "");
    assert!(why(&cut, &[5, 7]).contains("'' where 'tape end 1' is next"));
    let cut: Vec<&str> = TRACE.lines().take(10).collect();
    assert!(why(&cut.join("\n"), &[5, 7]).contains("has 0 of 2 moves"));
}

#[test]
fn masks_are_of_any_length() {
    assert_eq!(mask("00000001,000000ff"), Some(9));
    assert_eq!(mask("6"), Some(2));
    assert_eq!(mask("0x6"), None);
}
