//! A damaged run directory gives an error or a run, never a panic and never a hang.

mod common;

use std::fs;
use std::path::Path;
use std::sync::OnceLock;

use proptest::prelude::*;
use record::{ReadError, read_run, write_run};
use serde_json::Value as Json;
use tempfile::TempDir;

const TABLE: &str = "tables/handlers.parquet";
const FILES: [&str; 3] = ["manifest.json", TABLE, "tables/empty.parquet"];

/// A sound run directory. It is written only once, because making it durable takes most of the time of these tests.
fn written() -> TempDir {
    static SOUND: OnceLock<[Vec<u8>; 3]> = OnceLock::new();
    let sound = SOUND.get_or_init(|| {
        let parent = tempfile::tempdir().unwrap();
        let dir = parent.path().join("run");
        write_run(&common::sample(), &[], &dir).unwrap();
        FILES.map(|file| fs::read(dir.join(file)).unwrap())
    });
    let parent = tempfile::tempdir().unwrap();
    fs::create_dir_all(parent.path().join("run/tables")).unwrap();
    for (file, bytes) in FILES.iter().zip(sound) {
        fs::write(parent.path().join("run").join(file), bytes).unwrap();
    }
    parent
}

/// The error of reading a run whose manifest was changed by `edit`.
fn error_after(edit: impl Fn(&mut Json)) -> String {
    let parent = written();
    let dir = parent.path().join("run");
    edit_manifest(&dir, edit);
    let error = read_run(&dir).unwrap_err().to_string();
    error.replace(&format!("{}/", dir.display()), "")
}

fn edit_manifest(dir: &Path, edit: impl Fn(&mut Json)) {
    let path = dir.join("manifest.json");
    let mut manifest: Json = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
    edit(&mut manifest);
    fs::write(&path, manifest.to_string()).unwrap();
}

#[test]
fn an_unknown_schema_is_named_with_those_that_can_be_read() {
    let error = error_after(|manifest| *manifest = serde_json::json!({"schema": "irqlab.run/9"}));
    let expected = r#"manifest.json: schema "irqlab.run/9"; this version reads irqlab.run/2"#;
    assert_eq!(error, expected);
}

#[test]
fn errors_name_the_file_and_the_field() {
    let table = |manifest: &mut Json, key: &str, value: Json| manifest["tables"][0][key] = value;
    let check = |edit: &dyn Fn(&mut Json), expected: &str| assert_eq!(error_after(edit), expected);
    check(
        &|m| table(m, "name", "../x".into()),
        r#"manifest.json: table name "../x": must be 1 to 64 of a-z, 0-9 and _"#,
    );
    check(
        &|m| table(m, "file", "/etc/passwd".into()),
        r#"manifest.json: table handlers: file is "/etc/passwd", not "tables/handlers.parquet""#,
    );
    check(&|m| table(m, "rows", 5.into()), &format!("{TABLE}: 4 rows, but the manifest says 5"));
    check(
        &|m| table(m, "rows", 10_000_001.into()),
        "manifest.json: table handlers: 10000001 rows, more than 10000000",
    );
    check(
        &|m| m["tables"][0]["columns"][1]["kind"] = "real".into(),
        &format!("{TABLE}: column count: is uint, but the manifest says real"),
    );
    check(
        &|m| m["tables"][0]["columns"][1]["name"] = "number".into(),
        &format!("{TABLE}: column number: missing"),
    );
    check(
        &|m| m["tables"][0]["columns"][1]["name"] = "name".into(),
        r#"manifest.json: table handlers: column name "name" occurs twice"#,
    );
    check(
        &|m| drop(m["tables"][0]["columns"].as_array_mut().unwrap().pop()),
        &format!("{TABLE}: 5 columns, but the manifest says 4"),
    );
    check(
        &|m| m["tables"][0]["display"]["sort_by"] = "x".into(),
        r#"manifest.json: table handlers: display: there is no column "x""#,
    );
    check(
        &|m| m["tables"][0]["columns"][1]["interval"]["ends"]["half_width"] = "x".into(),
        r#"manifest.json: table handlers: column count: interval: there is no column "x""#,
    );
    check(
        &|m| m["tables"][0]["columns"][1]["interval"]["ends"]["half_width"] = "name".into(),
        "manifest.json: table handlers: column count: interval: column name is text",
    );
    check(
        &|m| table(m, "crc32", 1.into()),
        &format!("{TABLE}: damaged: its checksum is not the manifest's"),
    );
    check(
        &|m| table(m, "bytes", (5_u64 << 30).into()),
        "manifest.json: table handlers: 5368709120 bytes, more than 4294967296",
    );
    check(
        &|m| table(m, "bytes", 1.into()),
        &format!("{TABLE}: more bytes than the manifest says (1)"),
    );
    let missing = error_after(|m| drop(m.as_object_mut().unwrap().shift_remove("bench")));
    assert!(missing.starts_with("manifest.json: missing field `bench`"), "{missing}");
}

#[test]
fn what_is_not_a_file_is_not_read() {
    let parent = written();
    let dir = parent.path().join("run");
    fs::remove_file(dir.join(TABLE)).unwrap();
    assert!(matches!(read_run(&dir), Err(ReadError::Io { path, .. }) if path.ends_with(TABLE)));
    fs::create_dir(dir.join(TABLE)).unwrap();
    let error = read_run(&dir).unwrap_err();
    assert!(error.to_string().ends_with("handlers.parquet: not a regular file"), "{error}");
    assert!(matches!(read_run(&dir.join("absent")), Err(ReadError::Io { .. })));
}

#[test]
fn a_manifest_has_a_limit() {
    let parent = written();
    let dir = parent.path().join("run");
    fs::write(dir.join("manifest.json"), vec![b' '; (16 << 20) + 1]).unwrap();
    let error = read_run(&dir).unwrap_err();
    assert!(error.to_string().ends_with("manifest.json: more than 16777216 bytes"), "{error}");
}

/// Writes the size and checksum of the damaged file into the manifest, so that only the decoder can find the damage.
fn forge(dir: &Path, index: usize, bytes: &[u8]) {
    edit_manifest(dir, |manifest| {
        manifest["tables"][index]["bytes"] = bytes.len().into();
        manifest["tables"][index]["crc32"] = crc32(bytes).into();
    });
}

fn crc32(bytes: &[u8]) -> u32 {
    let step = |crc: u32| if crc & 1 == 1 { 0xEDB8_8320 ^ (crc >> 1) } else { crc >> 1 };
    !bytes.iter().fold(!0, |crc, byte| (0..8).fold(crc ^ u32::from(*byte), |crc, _| step(crc)))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn damaged_bytes_give_an_error_or_a_run(
        file in 0..FILES.len(),
        flips in prop::collection::vec((any::<prop::sample::Index>(), 1..=255_u8), 0..4),
        cut in prop::option::of(any::<prop::sample::Index>()),
        forged: bool,
    ) {
        let parent = written();
        let dir = parent.path().join("run");
        let path = dir.join(FILES[file]);
        let sound = fs::read(&path).unwrap();
        let mut bytes = sound.clone();
        for (index, mask) in flips {
            bytes[index.index(sound.len())] ^= mask;
        }
        if let Some(cut) = cut {
            bytes.truncate(cut.index(sound.len()));
        }
        fs::write(&path, &bytes).unwrap();
        if forged && file > 0 {
            forge(&dir, file - 1, &bytes);
        }
        let outcome = read_run(&dir);
        // Without forgery, no damage to a table goes unnoticed.
        if file > 0 && !forged {
            prop_assert_eq!(outcome.is_ok(), bytes == sound);
        }
    }
}
