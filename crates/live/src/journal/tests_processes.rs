//! Tests with several processes, in several namespaces, that share a directory of journals.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use super::*;

/// Environment variable with the directory, for a process that a test starts.
const DIRECTORY: &str = "IRQLAB_TEST_JOURNALS_IN";
/// A setting that each network namespace has separately.
const TTL: &str = "/proc/sys/net/ipv4/ip_default_ttl";

/// Runs a test of this file as another process, in the namespaces that the options
/// of unshare(1) create.
fn start(test: &str, directory: &Path, unshare: &[&str]) -> Command {
    let this_program = std::env::current_exe().unwrap();
    let mut command = match unshare {
        [] => Command::new(this_program),
        options => {
            let mut command = Command::new("unshare");
            command.args(options).arg(this_program);
            command
        }
    };
    let test = format!("journal::tests_processes::{test}");
    command.args([&*test, "--exact", "--nocapture", "--test-threads=1"]);
    command.env(DIRECTORY, directory);
    command
}

/// The directory of journals, in a process that a test has started.
fn directory() -> Option<PathBuf> {
    std::env::var_os(DIRECTORY).map(PathBuf::from)
}

fn setting() -> Resource {
    Resource::setting(Path::new(TTL))
}

/// Ends a journal like a kill: its file stays, and the kernel releases the locks.
fn die(mut journal: Journal) {
    journal.file = None;
    journal.contents.entries.clear();
}

/// Replays a dead journal. Another test may start a program at this time: its child has copies of the locks until it
/// executes that program.
fn replay_when_released(directory: &Path) -> Vec<String> {
    for _ in 0..500 {
        let messages = replay_dead_in(directory);
        if !messages.is_empty() {
            return messages;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    Vec::new()
}

fn file_and_journal(root: &Path) -> (PathBuf, Journal) {
    let file = root.join("irqlab-a");
    let mut journal = Journal::open_in(&root.join("journal")).unwrap();
    journal.will_create_file(&file).unwrap();
    fs::write(&file, "x").unwrap();
    (file, journal)
}

/// Not a test of its own: the next test starts it as a process.
#[test]
fn child_that_replays() {
    for message in directory().map(|directory| replay_dead_in(&directory)).unwrap_or_default() {
        println!("replayed: {message}");
    }
}

/// Options of unshare(1). Process numbers or start times differ between the resulting namespaces.
const NAMESPACES: [&[&str]; 4] = [
    &[],
    &["--pid", "--fork", "--mount-proc"],
    &["--time", "--boottime", "86400", "--monotonic", "86400", "--fork"],
    &["--pid", "--time", "--boottime", "86400", "--fork", "--mount-proc"],
];

#[test]
fn whether_an_owner_lives_is_the_same_in_every_namespace() {
    for options in NAMESPACES {
        let root = tempfile::tempdir().unwrap();
        let (file, journal) = file_and_journal(root.path());
        let directory = root.path().join("journal");
        let replayed = || -> Option<Vec<String>> {
            let Output { status, stdout, stderr } =
                start("child_that_replays", &directory, options).output().ok()?;
            if !status.success() {
                let why = String::from_utf8_lossy(&stderr);
                needs::not_run(needs::Need::Namespaces, format!("unshare {options:?}: {why}"));
                return None;
            }
            let text = String::from_utf8(stdout).unwrap();
            let messages = text.lines().filter_map(|line| line.split_once("replayed: "));
            Some(messages.map(|(_, message)| message.to_owned()).collect())
        };
        let Some(messages) = replayed() else { continue };
        assert_eq!(messages, Vec::<String>::new(), "{options:?}: its owner lives");
        assert!(file.exists(), "{options:?}");
        die(journal);
        // As in `replay_when_released`, a child of another test may still have copies of the locks.
        let messages = (0..100).map(|_| replayed().unwrap()).find(|messages| !messages.is_empty());
        let messages = messages.unwrap_or_default();
        assert!(messages.len() == 1 && messages[0].starts_with("removed "), "{messages:?}");
        assert!(!file.exists(), "{options:?}: its owner is dead");
        assert_eq!(fs::read_dir(&directory).unwrap().count(), 0);
    }
}

#[test]
fn a_child_does_not_keep_the_locks_of_a_dead_parent() {
    let root = tempfile::tempdir().unwrap();
    let (file, mut journal) = file_and_journal(root.path());
    journal.lock(setting()).unwrap();
    let mut child = Command::new("sleep").arg("1000000").spawn().unwrap();
    die(journal);
    let messages = replay_when_released(&root.path().join("journal"));
    let has_ended = child.try_wait().unwrap().is_some();
    child.kill().and_then(|()| child.wait()).unwrap();
    assert!(!has_ended && !file.exists() && messages.len() == 1, "{messages:?}");
}

#[test]
fn a_resource_is_refused_with_the_number_of_its_holder_until_the_holder_ends() {
    let root = tempfile::tempdir().unwrap();
    let directory = root.path().join("journal");
    let mut first = Journal::open_in(&directory).unwrap();
    first.lock(setting()).unwrap();
    let mut second = Journal::open_in(&directory).unwrap();
    second.locks.set_wait(Duration::from_millis(20));
    let error = second.lock(setting()).unwrap_err();
    let text = format!("{TTL} is being changed by irqlab process {}", std::process::id());
    assert!(error.to_string().starts_with(&text), "{error}");
    assert!(matches!(error, JournalError::Busy { .. }));
    drop(first);
    second.lock(setting()).unwrap();
}

/// A process that dies before the second process has the lock leaves no value that the second one
/// could take for the old value.
#[test]
fn what_a_killed_process_left_is_undone_before_the_next_one_has_the_lock() {
    let root = tempfile::tempdir().unwrap();
    let (file, journal) = file_and_journal(root.path());
    die(journal);
    let directory = root.path().join("journal");
    // As in `replay_when_released`, a child of another test may still have copies of the locks.
    let messages = (0..500).find_map(|_| {
        let messages = Journal::open_in(&directory).unwrap().lock(setting()).unwrap();
        if messages.is_empty() {
            std::thread::sleep(Duration::from_millis(10));
        }
        (!messages.is_empty()).then_some(messages)
    });
    let messages = messages.unwrap_or_default();
    assert!(messages.len() == 1 && !file.exists(), "{messages:?}");
}

/// A journal has two settings, and a living process holds one of them. Nobody undoes half of the
/// journal, and nobody gets the changed value of the other setting.
#[test]
fn a_dead_ones_journal_waits_until_all_of_its_resources_are_free() {
    let root = tempfile::tempdir().unwrap();
    let directory = root.path().join("journal");
    let others = [TTL, "/proc/sys/kernel/no_such_thing"];
    let mut dead = Journal::open_in(&directory).unwrap();
    for path in others {
        dead.lock(Resource::setting(Path::new(path))).unwrap();
        dead.will_write(Path::new(path), "64").unwrap();
    }
    let mut second = Journal::open_in(&directory).unwrap();
    // Simulates that the living process holds the lock from before the dead process's change.
    let held = Resource::setting(Path::new(others[1]));
    let lock = held.lock_file(&directory);
    die(dead);
    let attempt = lock::try_lock(&lock).unwrap();
    second.locks.set_wait(Duration::from_millis(20));
    let error = second.lock(setting()).unwrap_err();
    assert!(matches!(error, JournalError::Busy { .. }), "{error}");
    assert!(fs::read_dir(&directory).unwrap().count() >= 2, "the journal stays");
    drop(attempt);
    assert_eq!(replay_dead_in(&directory).len(), usize::from(Path::new(TTL).exists()));
    second.lock(setting()).unwrap();
}

/// Not a test of its own: changes the setting several times. With an even number, the process ends
/// in the middle of the last change. Each time, the setting must have its first value before, and
/// the written value after.
#[test]
fn child_that_changes_a_setting() {
    if let Some(directory) = directory() {
        change_a_setting(&directory);
    }
}

fn change_a_setting(directory: &Path) {
    let number: u32 = std::env::var("IRQLAB_TEST_NUMBER").unwrap().parse().unwrap();
    for round in 0..5 {
        let mut journal = Journal::open_in(directory).unwrap();
        journal.locks.set_wait(Duration::from_secs(60));
        journal.lock(setting()).unwrap();
        let old = fs::read_to_string(TTL).unwrap();
        assert_eq!(old.trim(), "64", "another process's value");
        journal.will_write(Path::new(TTL), &old).unwrap();
        let own_value = (100 + number).to_string();
        fs::write(TTL, &own_value).unwrap();
        std::thread::sleep(Duration::from_millis(2));
        assert_eq!(
            fs::read_to_string(TTL).unwrap().trim(),
            own_value,
            "another process has written"
        );
        if round == 4 && number.is_multiple_of(2) {
            // Drops nothing, like a kill. A kill does not serve, because the first process of a PID
            // namespace is exempt from it.
            std::process::exit(9);
        }
    }
}

#[test]
fn processes_that_change_one_setting_do_it_one_at_a_time_and_restore_the_first_value() {
    // SAFETY: only the network namespace of this thread changes.
    let unshared = unsafe { rustix::thread::unshare_unsafe(rustix::thread::UnshareFlags::NEWNET) };
    if unshared.is_err() || fs::write(TTL, "64").is_err() {
        return needs::not_run(needs::Need::Namespaces, "no network namespace of its own");
    }
    let root = tempfile::tempdir().unwrap();
    let directory = root.path().join("journal");
    let children = (0..6).map(|number| {
        // Half of the children are in PID namespaces, where all have the same number.
        let options: &[&str] = if number < 3 { &[] } else { NAMESPACES[1] };
        let mut command = start("child_that_changes_a_setting", &directory, options);
        command.env("IRQLAB_TEST_NUMBER", number.to_string());
        (number, command.stdout(Stdio::piped()).spawn().unwrap())
    });
    let children: Vec<(u32, Child)> = children.collect();
    for (number, child) in children {
        let ended = child.wait_with_output().unwrap();
        let text = String::from_utf8_lossy(&ended.stdout).into_owned();
        // Children with an even number end in the middle of a change.
        assert_eq!(ended.status.success(), number % 2 == 1, "{number}: {text}");
        assert!(!text.contains("panicked"), "{number}: {text}");
    }
    let _ = replay_dead_in(&directory);
    assert_eq!(fs::read_to_string(TTL).unwrap().trim(), "64");
    assert_eq!(fs::read_dir(&directory).unwrap().count(), 0);
}
