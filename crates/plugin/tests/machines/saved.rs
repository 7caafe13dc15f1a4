//! Machines that are booted once, saved, and continued by each test that does not concern the boot.

use std::collections::HashMap;
use std::ffi::OsString;
use std::fs::{self, File};
use std::os::fd::AsRawFd;
use std::sync::{Arc, Mutex, OnceLock};

use crate::machine::{Machine, Processor};
use crate::monitor::{self, Monitor};

/// The properties that make two saved machines different.
#[derive(Clone, PartialEq, Eq, Hash)]
struct Kind {
    guest: &'static str,
    line: &'static str,
    cpus: u32,
    processor: Processor,
    has_pmu: bool,
}

/// A machine that waits for a request.
struct Saved {
    /// Without a name, so that nothing is left when this test is killed.
    state: File,
    /// The plugin's state of counters, with a PMU.
    pmu: Vec<u8>,
}

impl Machine {
    /// Continues a machine that was saved when it was up, to power-off. `request` is the guest's phase, and
    /// words for it. With `pmu=` in the plugin's options, a machine with counters.
    pub fn continue_saved(&self, cpus: u32, request: &str, plugin: &str) {
        let has_pmu = plugin.split(',').any(|option| option.starts_with("pmu="));
        let Machine { guest, line, processor, .. } = *self;
        let saved = self.saved(Kind { guest, line, cpus, processor, has_pmu });
        let saved = saved.get().expect("saved above");
        let mut plugin = plugin.to_owned();
        if has_pmu {
            fs::write(self.path("pmu"), &saved.pmu).unwrap();
            plugin += &format!(",pmu_state={}", self.path("pmu").display());
        }
        let mut command = self.command(cpus, "wait", Some(&plugin));
        command.args(request_file(request)).args(["-incoming", &file(&saved.state)]);
        // It would announce itself on its networks by timers of the host's clock, which end the time slices
        // of vCPUs, too.
        command.args(["-global", "migration.announce-rounds=0"]);
        let mut monitor = Monitor::start(command, self.path("errors"));
        monitor.go_on();
        self.finish(monitor.let_go());
    }

    /// The output of the guest at its second serial port.
    pub fn output(&self) -> String {
        fs::read_to_string(self.path("wait")).unwrap().replace('\r', "")
    }

    /// Boots and saves a machine of a kind, once in this program.
    fn saved(&self, kind: Kind) -> Arc<OnceLock<Saved>> {
        static ALL: Mutex<Option<HashMap<Kind, Arc<OnceLock<Saved>>>>> = Mutex::new(None);
        let slot = {
            let mut all = ALL.lock().unwrap();
            Arc::clone(all.get_or_insert_default().entry(kind.clone()).or_default())
        };
        slot.get_or_init(|| self.save(&kind));
        slot
    }

    fn save(&self, kind: &Kind) -> Saved {
        let mut plugin = format!("out={},detail=fast", self.path("no-record").display());
        if kind.has_pmu {
            let (pmu, file) = (kind.processor.pmu, self.path("pmu"));
            plugin += &format!(",pmu={pmu},pmu_save={}", file.display());
        }
        let mut command = self.command(kind.cpus, "wait", Some(&plugin));
        command.args(request_file("wait"));
        let state = tempfile::tempfile().unwrap();
        let mut monitor = Monitor::start(command, self.path("errors"));
        monitor::wait(|| {
            fs::read_to_string(self.path("wait")).is_ok_and(|output| output.contains("ready"))
        });
        monitor.save(&file(&state));
        self.finish(monitor.quit());
        let pmu = if kind.has_pmu { fs::read(self.path("pmu")).unwrap() } else { Vec::new() };
        Saved { state, pmu }
    }
}

/// The file that the guest reads its request from.
fn request_file(request: &str) -> [OsString; 2] {
    ["-fw_cfg".into(), format!("name=opt/irqlab/order,string={request}").into()]
}

/// QEMU's name of a file that this test has open.
fn file(file: &File) -> String {
    format!("file:/proc/{}/fd/{}", std::process::id(), file.as_raw_fd())
}
