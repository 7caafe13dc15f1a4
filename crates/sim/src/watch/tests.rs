//! Tests of `watch.rs`.

use super::*;
use crate::machine::tests::machine;
use crate::qemu::tests::qemu;

const NOTHING: Annotated = Annotated { symbols: None, offsets: None };

#[test]
fn symbols_come_with_the_one_behind_them() {
    let text = "ffffffff81000000 T _stext\n\
                ffffffff81000040 t __do_softirq\n\
                ffffffff81000100 T one\n\
                ffffffff81000100 T same_place\n\
                ffffffff81000200 T two\n";
    let symbols = Symbols::parse(text.as_bytes()).unwrap();
    let lines = wanted_lines(&symbols, ["__do_softirq", "not_there"].into_iter());
    assert_eq!(lines, "ffffffff81000040 __do_softirq\nffffffff81000100 one\n");
    assert_eq!(wanted_lines(&symbols, ["two"].into_iter()), "ffffffff81000200 two\n");
}

#[test]
fn commas_of_paths_reach_the_plugin() {
    let scratch = tempfile::tempdir().unwrap();
    let cache = Cache::at(&scratch.path().join("a,b")).unwrap();
    let annotated = Annotated { symbols: Some("/s,1".into()), offsets: None };
    let recording =
        Recording::new(&cache, &qemu(), &machine(), &annotated, &Watch::default(), None);
    let recording = recording.unwrap();
    let added = recording.instrumentation();
    let [plugin, options] = added.arguments.as_slice() else { panic!("{added:?}") };
    assert_eq!(plugin, "-plugin");
    assert!(options.contains("/a,,b/plugin-") && options.contains(",symbols=/s,,1"));
    let path = options.replace(",,", "\0").split(',').next().unwrap().replace('\0', ",");
    assert_eq!(fs::read(path).unwrap(), PLUGIN);
}

#[test]
fn a_record_without_an_end_says_what_happened() {
    let scratch = tempfile::tempdir().unwrap();
    let cache = Cache::at(scratch.path()).unwrap();
    let watch = Watch::default();
    let new = || Recording::new(&cache, &qemu(), &machine(), &NOTHING, &watch, None).unwrap();
    let mut short = new();
    short.file.write_all(&[0; 7]).unwrap();
    let place = scratch.path().join("kept");
    short.keep_at = Some(place.clone());
    for recording in [short, new()] {
        let error = recording.account().unwrap_err().to_string();
        assert!(error.contains("the record of the machine: incomplete"), "{error}");
        assert!(error.contains("the disk was full"), "{error}");
    }
    assert!(!place.exists(), "half a record is none");
    assert!(check_place(Path::new("/nowhere/at-all")).is_err());
    keep(&fs::File::open("/proc/self/stat").unwrap(), &place).unwrap();
    assert!(fs::metadata(&place).unwrap().len() > 0);
    fs::remove_file(&place).unwrap();
    let names: Vec<_> = fs::read_dir(scratch.path()).unwrap().flatten().collect();
    assert_eq!(names.len(), 1, "a plugin and nothing else: {names:?}");
}
