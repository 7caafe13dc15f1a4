//! Tests of accounts, on records made by hand.

use simrecord::counters::{COUNTERS, CYCLES, INSTRUCTIONS, MASK_PLAIN};
use simrecord::record::{
    ContextRow, Counters, CountersOf, Detail, End, Header, IrqName, Region, Roi, Task,
};

use super::*;

fn stream(cpus: u32, records: Vec<Record>) -> Stream {
    let header = Header {
        cpus,
        api: 7,
        detail: Detail::Count,
        roi: Roi::Marker,
        quantum: 1000,
        qemu: [0; 16],
        features: FEATURE_CONTEXTS,
        counters: MASK_PLAIN,
    };
    let end = End {
        by_marker: true,
        by_annotation: false,
        truncated: false,
        instructions: Some(9),
        records: 0,
    };
    Stream { header, records, end }
}

fn amounts(cpu: u32, of: CountersOf, instructions: u64) -> Record {
    let mut values = [0; 6];
    values[INSTRUCTIONS] = instructions;
    Record::Counters(Counters { cpu, of, first: 0, values })
}

fn region(cpu: u32, instructions: u64, broken: u64) -> Vec<Record> {
    let region = Region {
        cpu,
        region: 1,
        unknown_gates: 0,
        unmatched_returns: 0,
        abandoned: 0,
        overflows: 0,
        broken,
        opened_at: 40 + u64::from(cpu),
    };
    vec![Record::Region(region), amounts(cpu, CountersOf::Region, instructions)]
}

fn row(cpu: u32, code: u64, own: u64) -> Vec<Record> {
    let row = ContextRow { cpu, region: 1, code, entries: 1, completed: 1 };
    vec![Record::Context(row), amounts(cpu, CountersOf::SelfCounts, own)]
}

fn span(cpu: u32, context: KernelContext) -> Record {
    Record::Span(Span {
        cpu,
        region: 1,
        code: context.code(),
        start: 100,
        self_cycles: 7,
        inclusive_cycles: 9,
        self_instructions: 7,
        inclusive_instructions: 9,
    })
}

fn kernel(context: KernelContext, at_close: bool, value: u64) -> Record {
    let code = context.code();
    let inside = at_close;
    Record::KernelCount(KernelCount { cpu: 0, region: 1, at_close, code, value, inside })
}

#[test]
fn later_rows_of_a_region_replace_earlier_ones() {
    let user = KernelContext::User(7);
    let records = [
        region(0, 3, 0),
        row(0, user.code(), 3),
        region(1, 0, 0),
        region(0, 5, 0),
        row(0, KernelContext::Idle.code(), 1),
        row(0, user.code(), 4),
        region(1, 2, 0),
        row(1, user.code(), 2),
        vec![Record::Task(Task { pid: 7, comm: *b"a\x1bb\0junk\0\0\0\0\0\0\0\0" })],
    ];
    let account = Accounting::of(&stream(2, records.concat())).unwrap();
    assert_eq!(account.broken, Vec::<String>::new());
    let rows = &account.regions[0].cpus[0].contexts;
    let owns: Vec<u64> = rows.iter().map(|row| row.own[INSTRUCTIONS]).collect();
    assert_eq!((account.regions.len(), owns), (1, vec![1, 4]));
    assert_eq!(account.name_of(user), "user 7 a?b");
    assert_eq!(account.name_of(KernelContext::User(8)), "user 8");
    assert!(
        account.counts(INSTRUCTIONS) && account.counts(CYCLES) && !account.counts(COUNTERS - 1)
    );
}

#[test]
fn spans_and_the_kernels_counts_go_to_their_cpu() {
    let timer = KernelContext::Interrupt(0xec);
    let line = KernelContext::Irq(24);
    let mut name = [0; 32];
    name[..4].copy_from_slice(b"nvme");
    let records = [
        region(0, 7, 0),
        row(0, timer.code(), 7),
        vec![
            kernel(timer, false, u64::from(u32::MAX)),
            span(0, timer),
            kernel(timer, true, 1),
            kernel(line, true, 5),
            Record::IrqName(IrqName { irq: 24, name }),
        ],
    ];
    let account = Accounting::of(&stream(1, records.concat())).unwrap();
    assert_eq!(account.broken, Vec::<String>::new());
    let cpu = &account.regions[0].cpus[0];
    assert_eq!((cpu.spans[0].ended_at_cycles, cpu.spans[0].own_cycles), (109, 7));
    assert_eq!(cpu.kernel, [KernelUse { context: timer, count: 2, edge_max: 1 }]);
    assert_eq!(account.name_of(line), "irq 24 nvme");
}

#[test]
fn sums_that_do_not_close_are_said() {
    let timer = KernelContext::Interrupt(0xec).code();
    let broken =
        |records: &[Vec<Record>]| Accounting::of(&stream(1, records.concat())).unwrap().broken;
    let short = broken(&[region(0, 5, 0), row(0, timer, 4)]);
    assert!(short[0].contains("CPU 0: what contexts used"), "{short:?}");
    assert!(broken(&[region(0, 0, 2)])[0].contains("2 events out of order"));
    let softirq = KernelContext::Softirq(1);
    let spans = vec![span(0, softirq), span(0, softirq)];
    let many = broken(&[region(0, 5, 0), row(0, softirq.code(), 5), spans]);
    assert_eq!(many, ["CPU 0: 2 spans of softirq TIMER, and 1 ended"]);
}

#[test]
fn each_cpu_says_when_the_region_opened_on_its_own_clock() {
    let records = [region(0, 0, 0), region(1, 0, 0)].concat();
    let account = Accounting::of(&stream(2, records)).unwrap();
    let opened = account.regions[0].cpus.iter().map(|cpu| cpu.opened_at_cycles);
    assert_eq!(opened.collect::<Vec<_>>(), [40, 41]);
}

#[test]
fn records_that_contradict_each_other_are_refused() {
    let idle = || row(0, KernelContext::Idle.code(), 1);
    let timer = KernelContext::Interrupt(0xec);
    for (cpus, records) in [
        (1, idle()),
        (1, region(1, 0, 0)),
        (2, region(0, 0, 0)),
        (2, region(1, 0, 0)),
        (1, [region(0, 0, 0), row(0, u64::MAX, 0)].concat()),
        (1, vec![span(0, timer)]),
        (1, [region(0, 0, 0), vec![span(1, timer)]].concat()),
        (1, vec![kernel(timer, false, 1), kernel(timer, true, 1)]),
    ] {
        assert!(Accounting::of(&stream(cpus, records.clone())).is_err(), "{records:?}");
    }
    let empty = Accounting::of(&stream(1, Vec::new())).unwrap();
    assert!(empty.regions.is_empty() && empty.ended_by_guest);
}

#[test]
fn without_symbols_no_row_says_more_than_is_known() {
    let user = KernelContext::User(0).code();
    let rows = [region(0, 9, 0), row(0, user, 5), row(0, KernelContext::Unknown.code(), 4)];
    let mut stream = stream(1, rows.concat());
    stream.header.features = 0;
    let account = Accounting::of(&stream).unwrap();
    let rows = &account.regions[0].cpus[0].contexts;
    let [only] = rows.as_slice() else { panic!("{rows:?}") };
    assert_eq!((only.context, only.own[INSTRUCTIONS]), (KernelContext::Unknown, 9));
    assert_eq!(account.broken, Vec::<String>::new());
}
