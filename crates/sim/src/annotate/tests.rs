use plugin_interface::annotations::MachineMemory;

use super::*;
use crate::Symbols;
use crate::guest::btf::Btf;
use crate::guest::btf::tests::{ARRAY, INT, Maker, POINTER, STRUCT};

const SYMBOLS: &str = "\
0000000000000000 A __per_cpu_start
000000000001fb80 A current_task
0000000000030000 A __per_cpu_end
ffffffff81000000 T _text
ffffffff81000100 t helper
ffffffff81000200 t helper
ffffffff81000300 T do_open
ffffffff81000400 T __switch_to_asm
ffffffff81000500 T after
ffffffff81000600 t copied.constprop.0
ffffffff81000700 t copied.isra.0
ffffffff81000800 t copied.cold
ffffffff81000880 t stamp
ffffffff81000900 t end
ffffffff82000000 D jiffies
";

fn btf() -> Btf {
    let mut maker = Maker::new();
    maker.add(INT, "int", 4, &[1 << 24 | 32]); // 1
    maker.add(INT, "char", 1, &[8]); // 2
    maker.add(ARRAY, "", 0, &[2, 1, 16]); // 3: char[16]
    maker.add(POINTER, "", 5, &[]); // 4: struct task_struct *
    maker.aggregate(
        STRUCT,
        "task_struct",
        64,
        &[
            ("pid", 1, 64),
            ("comm", 3, 128),
            ("parent", 4, 256),
            ("se", 6, 320),
            ("on", 1, 3 << 24 | 481),
        ],
    ); // 5
    maker.aggregate(STRUCT, "entity", 16, &[("runtime", 7, 0), ("slots", 8, 64)]); // 6
    maker.add(INT, "unsigned long", 8, &[64]); // 7
    maker.add(ARRAY, "", 0, &[1, 1, 2]); // 8: int[2]
    maker.add(POINTER, "", 2, &[]); // 9: char *
    maker.function("do_open", 10, &[("dfd", 1), ("name", 9), ("task", 4)]); // 10, 11
    maker.function("helper", 12, &[("task", 4)]); // 12, 13
    maker.aggregate(STRUCT, "kuid_t", 4, &[("val", 1, 0)]); // 14
    maker.function("stamp", 15, &[("time", 6), ("inode", 4), ("uid", 14)]); // 15, 16
    Btf::parse(maker.finish()).unwrap()
}

fn facts() -> GuestFacts {
    GuestFacts {
        release: "6.1".to_owned(),
        symbols: Some(Symbols::parse(SYMBOLS.as_bytes()).unwrap()),
        btf: Some(btf()),
        hz: None,
        config: None,
    }
}

fn read_with(facts: &GuestFacts, arguments: &[&str]) -> Result<Annotations> {
    let arguments: Vec<String> = arguments.iter().map(|text| (*text).to_owned()).collect();
    Annotations::read(&arguments, false, facts)
}

fn text(arguments: &[&str]) -> String {
    let memory = MachineMemory { low_bytes: 512 << 20, high_bytes: 0 };
    let text = read_with(&facts(), arguments).unwrap().text(memory);
    // The plugin's parser reads the text without loss.
    assert_eq!(AnnotationList::parse(&text).unwrap().to_string(), text);
    text.strip_prefix("memory 536870912 0\n").unwrap().to_owned()
}

fn error(argument: &str) -> String {
    read_with(&facts(), &[argument]).unwrap_err().to_string()
}

/// The program of an expression at the first instruction of `do_open`.
fn program(expression: &str) -> String {
    let text = text(&[&format!("do_open: record {expression}")]);
    text.strip_prefix("annotation address ffffffff81000300\nrecord ").unwrap().trim_end().to_owned()
}

#[test]
fn places_are_symbols_addresses_and_events() {
    assert_eq!(text(&["do_open"]), "annotation address ffffffff81000300\n");
    assert_eq!(text(&["do_open+0x10: count"]), "annotation address ffffffff81000310\n");
    assert_eq!(text(&["ffffffff81000310"]), "annotation address ffffffff81000310\n");
    assert_eq!(text(&["0x10"]), "annotation address 10\n");
    let both = "annotation address ffffffff81000100\nannotation address ffffffff81000200\n";
    assert_eq!(text(&["helper"]), both);
    assert_eq!(text(&["event:interrupt"]), "annotation interrupt\n");
    assert_eq!(text(&["event:exception:14"]), "annotation exception 14\n");
    assert_eq!(text(&["event:interrupt:0xec"]), "annotation interrupt 236\n");
    assert_eq!(text(&["event:switch"]), "annotation address ffffffff81000400\n");
    assert_eq!(text(&["marker:17: stop"]), "annotation marker 17\nstop\n");
}

#[test]
fn values_follow_the_types_of_the_kernel() {
    assert_eq!(program("rdi"), "reg:rdi");
    assert_eq!(program("r8d"), "reg:r8 bits:0+32");
    assert_eq!(program("current->comm"), "percpu:1fb80 load:8 add:10 text:16");
    assert_eq!(program("current->pid"), "percpu:1fb80 load:8 add:8 load:4 sign:32");
    let parent = "percpu:1fb80 load:8 add:20 load:8 add:28 load:8";
    assert_eq!(program("current->parent->se.runtime"), parent);
    assert_eq!(program("((struct task_struct*)rsi)->pid"), "reg:rsi add:8 load:4 sign:32");
    assert_eq!(program("((entity *)rsi)->slots[1]"), "reg:rsi add:c load:4 sign:32");
    let bits = "reg:rsi add:3c load:1 bits:1+3 sign:3";
    assert_eq!(program("((struct task_struct*)rsi)->on"), bits);
    assert_eq!(program("((u16*)rsi)[3]"), "reg:rsi add:6 load:2");
    assert_eq!(program("((u64*)&jiffies)[0]"), "const:ffffffff82000000 load:8");
    assert_eq!(program("&current_task"), "percpu:1fb80");
    assert_eq!(program("rdi rsi"), "reg:rdi ; reg:rsi");
}

#[test]
fn parameters_have_the_types_of_the_function() {
    assert_eq!(program("dfd"), "reg:rdi bits:0+32 sign:32");
    assert_eq!(program("str(name)"), "reg:rsi text:32");
    assert_eq!(program("task->comm"), "reg:rdx add:10 text:16");
    assert_eq!(program("str(task->comm)"), "reg:rdx add:10 text:32");
    let at_other_place = error("do_open+1: record dfd");
    let reason =
        "(parameters can be recorded only at the first instruction of a function that has a name)";
    let unknown =
        format!("dfd: no register or parameter has this name {reason}; known: current, rax,");
    assert!(at_other_place.contains(&unknown), "{at_other_place}");
    let other_name = error("do_open: record fd");
    let known = "fd: no register or parameter has this name; known: dfd, name, task, current, rax,";
    assert!(other_name.contains(known), "{other_name}");
    assert!(other_name.contains("and the lower halves eax to r15d"), "{other_name}");
    let without_types = GuestFacts { btf: None, ..facts() };
    let unknown = read_with(&without_types, &["do_open: record dfd"]).unwrap_err().to_string();
    let reason = "(the parameters of do_open are unknown: this kernel has no type information";
    assert!(unknown.contains(reason), "{unknown}");
}

#[test]
fn parameters_after_a_structure_are_in_later_registers() {
    let values = text(&["stamp: record inode->pid uid rdi"]);
    let values = values.lines().nth(1).unwrap();
    let expected = "record reg:rdx add:8 load:4 sign:32 ; reg:rcx bits:0+32 ; reg:rdi";
    assert_eq!(values, expected);
    assert!(error("stamp: record time").contains("time: this parameter is in two registers"));
}

#[test]
fn parameters_of_functions_with_the_same_name_are_refused() {
    for at in ["helper", "ffffffff81000200"] {
        let error = error(&format!("{at}: record task->pid"));
        assert!(error.contains("task: 2 functions are named helper,"), "{error}");
    }
    let read = read_with(&facts(), &["helper", "x=ffffffff81000210"]).unwrap();
    let places: Vec<&str> = read.list.iter().map(|annotation| annotation.place.as_str()).collect();
    assert_eq!(places, ["helper (1 of 2)", "helper (2 of 2)", "helper+0x10 (2 of 2)"]);
    let registers = text(&["helper: record rdi ((struct task_struct*)rdi)->pid"]);
    assert_eq!(registers.lines().filter(|line| line.starts_with("record reg:rdi")).count(), 2);
}

#[test]
fn actions_reach_the_plugin_in_their_order() {
    let all = ["a=do_open: span, record rdi", "helper+8: open x, detail fast", "after: close x"];
    assert_eq!(
        text(&all),
        "annotation address ffffffff81000300\nspan 0\nrecord reg:rdi\n\
         annotation address ffffffff81000108\nopen 1\ndetail fast\n\
         annotation address ffffffff81000208\nopen 1\ndetail fast\n\
         annotation address ffffffff81000500\nclose 1\n"
    );
    let read = read_with(&facts(), &all).unwrap();
    assert_eq!(read.spans, ["a", "x"]);
    assert_eq!((read.list[0].name.as_str(), &read.list[0].spans[..]), ("a", &[0][..]));
    assert_eq!(read.list[1].place, "helper+0x8 (1 of 2)");
    let recorded = &read.list[0].records;
    assert_eq!((recorded.len(), recorded[1][0].expression.as_str()), (2, "rdi"));
}

#[test]
fn annotations_of_one_place_have_names_of_their_own() {
    let list = ["do_open: record rdi", "do_open: record rsi", "do_open: span", "after"];
    let read = read_with(&facts(), &list).unwrap();
    let names: Vec<&str> = read.list.iter().map(|annotation| annotation.name.as_str()).collect();
    assert_eq!(names, ["do_open", "do_open (2)", "do_open (3)", "after"]);
    // Annotations of different places may share a name.
    let read = read_with(&facts(), &["x=do_open", "x=after"]).unwrap();
    assert_eq!((read.list[0].name.as_str(), read.list[1].name.as_str()), ("x", "x"));
}

#[test]
fn errors_suggest_similar_names() {
    for (argument, names) in [
        ("do_opn", "near: do_open"),
        ("jiffies", "is not code"),
        ("do_open+0x100", "is shorter"),
        ("do_open+x", "number of bytes"),
        ("event:irq", "interrupt, exception, switch"),
        ("event:exception:256", "0 to 255"),
        ("marker:x", "a marker has a number"),
        ("do_open: recrd x", "near: record"),
        ("do_open: record", "1 to 4 expressions"),
        ("do_open: record rax rax rax rax rax", "1 to 4 expressions"),
        ("do_open: record rfx", "rax, rbx"),
        ("do_open: record rfx", "dfd, name, task"),
        ("do_open: record current->com", "near: comm"),
        ("do_open: record current->se.runtim", "near: runtime"),
        ("do_open: record ((struct task_strct*)rdi)->pid", "near: task_struct"),
        ("do_open: record rdi->pid", "no pointer"),
        ("do_open: record task.pid", "write ->pid"),
        ("do_open: record task->pid->x", "no pointer"),
        ("do_open: record task->se", "struct entity has no value"),
        ("do_open: record task->se.slots", "name an element"),
        ("do_open: record task->se.slots[2]", "has 2 elements"),
        ("do_open: record str(", "is missing"),
        ("do_open: open", "needs a name"),
        ("do_open: open x", "closed nowhere"),
        ("do_open: close x", "opened nowhere"),
        ("do_open: detail some", "full or fast"),
        ("do_open: checkpoint", "needs a name"),
        ("do_open: checkpoint a/b", "no name for a checkpoint"),
        ("do_open: stop now", "takes no argument"),
        ("event:interrupt: span", "open and close"),
        ("event:interrupt: detail full", "addresses and markers"),
    ] {
        let error = error(argument);
        assert!(error.contains(names), "{argument}: {error}");
    }
}

#[test]
fn a_function_is_annotated_in_all_of_its_copies() {
    let read = read_with(&facts(), &["copied: record rdi", "copied: span"]).unwrap();
    let places: Vec<&str> = read.list.iter().map(|annotation| annotation.place.as_str()).collect();
    let copies = ["copied.constprop.0", "copied.isra.0"];
    assert_eq!(places, [copies, copies].concat());
    let in_copy = read_with(&facts(), &["copied.isra.0+0x4: record rax"]).unwrap();
    assert_eq!(in_copy.list[0].address, Some(0xffff_ffff_8100_0704));
    assert!(error("copied+0x4").contains("name one of copied.constprop.0, copied.isra.0"));
    // Beyond the image, and where modules are.
    let place_of = |address: &str| read_with(&facts(), &[address]).unwrap().list[0].place.clone();
    assert_eq!(place_of("ffffffffc0000010"), "[module]");
    assert_eq!(place_of("ffffffff81000310"), "do_open+0x10");
}

#[test]
fn a_kernel_without_types_or_symbols_limits_annotations() {
    let without_types = GuestFacts { btf: None, ..facts() };
    let error =
        |facts: &GuestFacts, argument: &str| read_with(facts, &[argument]).unwrap_err().to_string();
    let types = "no type information (CONFIG_DEBUG_INFO_BTF)";
    assert!(error(&without_types, "do_open: record current->comm").contains(types));
    assert!(error(&without_types, "do_open: record ((struct a*)rdi)->b").contains(types));
    assert!(read_with(&without_types, &["do_open: record rdi ((u64*)rdi)[0]"]).is_ok());
    let bare = GuestFacts { symbols: None, ..without_types };
    assert!(error(&bare, "do_open").contains("CONFIG_KALLSYMS"));
    assert!(error(&bare, "event:exception:14").contains("no symbols"));
    assert!(read_with(&bare, &["ffffffff81000310: record rdi", "event:exception"]).is_ok());
}

#[test]
fn the_number_of_annotations_is_limited() {
    let many = vec!["do_open"; ANNOTATIONS_MAX + 1];
    let error = read_with(&facts(), &many).unwrap_err().to_string();
    assert!(error.contains("more than 1024 places"), "{error}");
    let much = format!("do_open: {}", vec!["stop"; ACTIONS_MAX + 1].join(", "));
    assert!(self::error(&much).contains("more than 16 actions"));
    let long = format!("do_open: record task{}", "->parent".repeat(20));
    assert!(self::error(&long).contains("too long for a value"));
}

proptest::proptest! {
    #[test]
    fn no_text_panics(text in "(do_open|helper|event|marker|:|: |, |record |span|open x|task|->|pid|\\[|\\]|1|\\+|0x|=|str|\\(|\\)){0,30}") {
        let _ = read_with(&facts(), &[text.as_str()]);
    }

    #[test]
    fn damaged_types_never_panic(changes in proptest::collection::vec((24_usize..500, 0_u8..), 1..8)) {
        let mut maker = Maker::new();
        maker.add(INT, "int", 4, &[1 << 24 | 32]);
        maker.add(ARRAY, "", 0, &[1, 1, 16]);
        maker.aggregate(STRUCT, "task_struct", 64, &[("pid", 1, 64), ("comm", 2, 128)]);
        maker.function("do_open", 4, &[("dfd", 1)]);
        let mut bytes = maker.finish();
        for (at, value) in changes {
            if let Some(byte) = bytes.get_mut(at) {
                *byte = value;
            }
        }
        if let Ok(btf) = Btf::parse(bytes) {
            let facts = GuestFacts { btf: Some(btf), ..facts() };
            for expression in ["dfd", "current->comm[3]", "current->pid", "((task_struct*)1)[2].x"] {
                let _ = read_with(&facts, &[&format!("do_open: record {expression}")]);
            }
        }
    }
}

#[test]
fn values_are_printed_by_their_types() {
    let shown = |show, value| Recorded { expression: String::new(), show }.shown(value);
    assert_eq!(shown(PrintFormat::Signed, Value::Number(u64::MAX)), "-1");
    assert_eq!(shown(PrintFormat::Unsigned, Value::Number(14)), "14");
    assert_eq!(shown(PrintFormat::Hex, Value::Number(0xffff)), "0xffff");
    assert_eq!(shown(PrintFormat::Hex, Value::Absent), "absent");
    let mut text = [0; 32];
    text[..4].copy_from_slice(b"l\x1bs\xff");
    assert_eq!(shown(PrintFormat::Text, Value::Text(text)), "l?s\u{fffd}");
}
