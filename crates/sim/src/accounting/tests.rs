//! Tests of the accounting of a record.

use super::*;
use simrecord::counters::{COUNTERS, CYCLES, INSTRUCTIONS, MASK_PLAIN};
use simrecord::record::{
    AnnotationRow, ContextRow, Counters, CountersOf, Detail, End, Header, IrqName, Region, Roi,
    Task, Values, ValuesKind,
};

fn stream(cpus: u32, records: Vec<Record>) -> Stream {
    let header = Header {
        cpus,
        api: 7,
        detail: Detail::Count,
        roi: Roi::Marker,
        vcpu_slice: 1000,
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

#[test]
fn writes_of_devices_that_were_lost_are_a_warning_with_their_number() {
    let notice = |notice, value| Record::Notice(notice, 0, value);
    let records = vec![
        notice(Notice::DeviceWritesLost, 7),
        notice(Notice::NoIcount, 0),
        notice(Notice::DeviceWritesLost, 5),
    ];
    let notices = notices(&stream(1, records));
    assert_eq!(notices.len(), 2, "{notices:?}");
    assert_eq!(notices[0], Notice::NoIcount.to_string());
    assert!(notices[1].ends_with("stale lines of the others (12 writes)"), "{notices:?}");
}

#[test]
fn events_that_are_not_counted_are_one_warning_that_names_them() {
    let notice = |event| Record::Notice(Notice::EventNotCounted, 0, event);
    let notices = notices(&stream(1, vec![notice(0x287), notice(0xc3), notice(0xc3)]));
    let [warning] = &notices[..] else { panic!("{notices:?}") };
    assert!(warning.ends_with("(event 0xc3, 0x287)"), "{warning}");
}

#[test]
fn hits_of_all_cpus_are_in_the_order_of_their_times() {
    let hit = |cpu, number| {
        let (annotation, action, kind) = (0, 0, ValuesKind::Hit);
        Record::Values(Values { cpu, region: 1, annotation, action, kind, number })
    };
    let hits = |cpu| {
        let (region, annotation, refused) = (1, 0, 0);
        Record::Annotation(AnnotationRow { cpu, region, annotation, hits: 2, refused })
    };
    let logged = vec![hit(0, 100), hit(0, 400), hit(1, 50), hit(1, 300)];
    let records = [logged, region(0, 5, 0), region(1, 5, 0), vec![hits(0), hits(1)]];
    let accounting = Accounting::of_record(&stream(2, records.concat())).unwrap();
    let times: Vec<(u32, u64)> = accounting.hits.iter().map(|hit| (hit.cpu, hit.at_ns)).collect();
    assert_eq!(times, [(1, 50), (0, 100), (1, 300), (0, 400)]);
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
fn a_record_without_room_for_the_rows_of_its_regions_is_full_and_not_contradictory() {
    let mut stream = stream(1, vec![span(0, KernelContext::Idle)]);
    let reason = |stream: &Stream| Accounting::of_record(stream).unwrap_err().to_string();
    assert!(reason(&stream).ends_with("belongs to no region"), "{}", reason(&stream));
    stream.end.truncated = true;
    assert!(reason(&stream).ends_with(RECORD_FULL), "{}", reason(&stream));
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
    let accounting = Accounting::of_record(&stream(2, records.concat())).unwrap();
    assert_eq!(accounting.broken, Vec::<String>::new());
    let rows = &accounting.regions[0].cpus[0].contexts;
    let owns: Vec<u64> = rows.iter().map(|row| row.self_counts[INSTRUCTIONS]).collect();
    assert_eq!((accounting.regions.len(), owns), (1, vec![1, 4]));
    assert_eq!(accounting.name_of(user), "user 7 a?b");
    assert_eq!(accounting.name_of(KernelContext::User(8)), "user 8");
    assert!(
        accounting.counts(INSTRUCTIONS)
            && accounting.counts(CYCLES)
            && !accounting.counts(COUNTERS - 1)
    );
}

#[test]
fn spans_and_kernel_counts_belong_to_their_cpu() {
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
    let accounting = Accounting::of_record(&stream(1, records.concat())).unwrap();
    assert_eq!(accounting.broken, Vec::<String>::new());
    let cpu = &accounting.regions[0].cpus[0];
    assert_eq!((cpu.spans[0].ended_at_cycles, cpu.spans[0].self_cycles), (109, 7));
    assert_eq!(cpu.kernel, [KernelUse { context: timer, count: 2, edge_max: 1 }]);
    assert_eq!(accounting.name_of(line), "irq 24 nvme");
}

#[test]
fn sums_that_do_not_add_up_are_reported() {
    let timer = KernelContext::Interrupt(0xec).code();
    let broken = |records: &[Vec<Record>]| {
        Accounting::of_record(&stream(1, records.concat())).unwrap().broken
    };
    let short = broken(&[region(0, 5, 0), row(0, timer, 4)]);
    assert!(short[0].contains("CPU 0: the counters of contexts"), "{short:?}");
    let events = "CPU 0: events were out of order or beyond a table's limit (2 events)";
    assert_eq!(broken(&[region(0, 0, 2)]), [events]);
    let softirq = KernelContext::Softirq(1);
    let spans = vec![span(0, softirq), span(0, softirq)];
    let many = broken(&[region(0, 5, 0), row(0, softirq.code(), 5), spans]);
    let line = "CPU 0: softirq TIMER: number of spans differs from completed entries (2 spans, 1 completed)";
    assert_eq!(many, [line]);
    // A kind is one line, on however many CPUs.
    let all = [region(0, 0, 2), region(1, 0, 9), region(2, 0, 5)].concat();
    let broken = Accounting::of_record(&stream(3, all)).unwrap().broken;
    let events = "CPUs 0-2: events were out of order or beyond a table's limit (least: 2 events, CPU 0; most: 9 \
                  events, CPU 1)";
    assert_eq!(broken, [events]);
}

#[test]
fn each_cpu_has_the_opening_of_the_region_on_its_own_clock() {
    let records = [region(0, 0, 0), region(1, 0, 0)].concat();
    let accounting = Accounting::of_record(&stream(2, records)).unwrap();
    let opened = accounting.regions[0].cpus.iter().map(|cpu| cpu.opened_at_cycles);
    assert_eq!(opened.collect::<Vec<_>>(), [40, 41]);
}

#[test]
fn a_cpu_that_goes_offline_is_named_with_its_time() {
    let hotplug = |state, at| vec![Record::Hotplug(Hotplug { cpu: 1, region: 1, state, at })];
    let rows = [region(0, 0, 0), region(1, 0, 0)].concat();
    let went = hotplug(HotplugState::Offline, 291);
    let account = Accounting::of_record(&stream(2, [went.clone(), rows.clone()].concat())).unwrap();
    let lines = |account: &Accounting| {
        let mut warnings = CpuWarnings::default();
        let of_region = account.regions[0].hotplug_warnings(1_000);
        of_region.into_iter().for_each(|warning| warnings.add("", warning));
        warnings.lines()
    };
    let [line] = &lines(&account)[..] else { panic!("{:?}", lines(&account)) };
    assert!(line.starts_with("CPU 1: went offline in the window"), "{line}");
    // The region opened for CPU 1 at 41.
    assert!(line.ends_with("(after 0.250 s)") && account.lacks_cpus(), "{line}");
    let came = hotplug(HotplugState::Online, 400);
    let records = [went, came, rows.clone()].concat();
    assert_eq!(lines(&Accounting::of_record(&stream(2, records)).unwrap()).len(), 2);
    let early = hotplug(HotplugState::Offline, 40);
    assert!(Accounting::of_record(&stream(2, [early, rows].concat())).is_err());
}

#[test]
fn times_of_a_withheld_cpu_are_in_the_order_of_time() {
    let withheld = |tsc| Record::Withheld(Withheld { cpu: 1, region: 1, tsc, length: 30 });
    let account = |times: [u64; 2]| {
        let rows = [region(0, 0, 0), region(1, 0, 0)].concat();
        Accounting::of_record(&stream(2, [times.map(withheld).to_vec(), rows].concat()))
    };
    let cpus = &account([500, 530]).unwrap().regions[0].cpus;
    assert_eq!(
        (&cpus[0].withheld[..], &cpus[1].withheld[..]),
        (&[][..], &[500..530, 530..560][..])
    );
    assert!(account([500, 529]).is_err());
}

#[test]
fn a_task_has_the_group_that_was_read_last() {
    let group = |group, at, tsc| Record::TaskGroup(TaskGroup { cpu: 1, region: 1, group, at, tsc });
    let account = |groups: Vec<Record>| {
        let rows = [region(0, 0, 0), region(1, 0, 0)].concat();
        Accounting::of_record(&stream(2, [groups, rows].concat()))
    };
    let read = account(vec![group(7, 500, 900), group(0, 600, 950), group(1, 700, 990)]);
    let cpu = &read.unwrap().regions[0].cpus[1];
    let found = [499, 500, 599, 600, 700].map(|cycles| cpu.group_at_cycles(cycles));
    assert_eq!(found, [None, Some(7), Some(7), None, Some(1)]);
    assert_eq!([899, 900, 990].map(|tsc| cpu.group_at_tsc(tsc)), [None, Some(7), Some(1)]);
    assert!(account(vec![group(7, 500, 900), group(1, 499, 900)]).is_err());
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
        assert!(Accounting::of_record(&stream(cpus, records.clone())).is_err(), "{records:?}");
    }
    let empty = Accounting::of_record(&stream(1, Vec::new())).unwrap();
    assert!(empty.regions.is_empty() && empty.ended_by_guest);
}

#[test]
fn without_symbols_all_contexts_are_unknown() {
    let user = KernelContext::User(0).code();
    let rows = [region(0, 9, 0), row(0, user, 5), row(0, KernelContext::Unknown.code(), 4)];
    let mut stream = stream(1, rows.concat());
    stream.header.features = 0;
    let accounting = Accounting::of_record(&stream).unwrap();
    let rows = &accounting.regions[0].cpus[0].contexts;
    let [only] = rows.as_slice() else { panic!("{rows:?}") };
    assert_eq!((only.context, only.self_counts[INSTRUCTIONS]), (KernelContext::Unknown, 9));
    assert_eq!(accounting.broken, Vec::<String>::new());
}
