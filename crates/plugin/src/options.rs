//! The options of the plugin: `-plugin FILE,out=FILE,detail=count,...`.

use std::path::PathBuf;

use simrecord::record::{Detail, Roi};

use crate::models::sampling::Sampling;

/// How guest time advances.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Time {
    /// Guest time follows the model's cycles. Without a model it follows instructions.
    Model,
    /// Guest time follows instructions (`-icount`).
    Uniform,
    /// Guest time follows the host's clock (no `-icount`), so runs do not repeat.
    Host,
}

/// The most models of shadow caches.
pub const ALSO_MAX: usize = 16;
/// The default length of a vCPU's time slice, in cycles.
pub const VCPU_SLICE_DEFAULT: u64 = 1_000;
/// The longest slice: beyond it QEMU's own round robin is as good.
pub const VCPU_SLICE_MAX: u64 = 1 << 30;
/// The largest value of `shift=`.
pub const SHIFT_MAX: u32 = 10;
/// The longest text of `qemu=`.
pub const VERSION_BYTES_MAX: usize = 16;

/// The most disks of a machine.
pub const DISKS_MAX: usize = 16;
/// The longest name of a block node: QEMU allows 31 bytes, and we add an ending.
const NODE_BYTES_MAX: usize = 24;
/// The longest latency of a disk.
pub const LATENCY_NS_MAX: u64 = 1_000_000_000;

/// A disk that is drained: block node `NODE` with `NODE-data` and `NODE-delay` below it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Disk {
    /// Name of the uppermost node.
    pub node: String,
    /// From request to completion, in nanoseconds of guest time.
    pub latency_ns: u64,
}

/// The plugin's options.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// The file of the record; empty for none, when only the limit matters.
    pub out: PathBuf,
    /// Guest time that the machine may take from when it runs, in nanoseconds.
    pub limit_ns: Option<u64>,
    /// How much is recorded.
    pub detail: Detail,
    /// Cycles of a slice. Without a model a cycle is an instruction.
    pub vcpu_slice: u64,
    /// The model, a TOML file: see `machines/`. Needed for [`Detail::Timed`] and
    /// [`Detail::Ooo`].
    pub model: Option<PathBuf>,
    /// Models of shadow caches, which see all accesses: for [`Detail::Count`].
    pub also: Vec<PathBuf>,
    /// Whether there are shadow caches of all sizes, too.
    pub curves: bool,
    /// The units that cores execute in detail, for [`Detail::Ooo`]. `None`: cores execute everything in detail.
    pub sampling: Option<Sampling>,
    /// Whether misses are classified by cause, evicting context and place: for [`Detail::Ooo`].
    pub misses: bool,
    /// How guest time advances.
    pub time: Time,
    /// An instruction takes `2^shift` ns of QEMU's clock: that of `-icount`.
    pub shift: u32,
    /// Whether only markers are recorded until one asks for more.
    pub start_fast: bool,
    /// Whether each span is recorded.
    pub spans: bool,
    /// Whether each span is recorded with its own counters.
    pub span_counts: bool,
    /// Whether each change of the context on top is recorded.
    pub transitions: bool,
    /// Whether services of the kernel are recorded.
    pub services: bool,
    /// Whether the locks that services take are recorded.
    pub locks: bool,
    /// Where the region of interest starts.
    pub roi: Roi,
    /// Addresses of kernel symbols.
    pub symbols: Option<PathBuf>,
    /// Offsets in structs of the kernel.
    pub offsets: Option<PathBuf>,
    /// Annotations: [`crate::guest::annotations::AnnotationList`] as text.
    pub annotate: Option<PathBuf>,
    /// QEMU's version as `sim` found it, for the header.
    pub qemu: String,
    /// Whether to compare counts with QEMU's own at each marker, and record both.
    pub check: bool,
    /// Whether QEMU leaves its loop of translated blocks at the end of each slice, even if nothing is due. The record
    /// is the same.
    pub exits_all: bool,
    /// Disks of the machine.
    pub disks: Vec<Disk>,
    /// Whether the guest has a PMU. Only this feature changes the guest.
    pub pmu: bool,
    /// The state of the PMUs at the start. `None`: zeros.
    pub pmu_state: Option<PathBuf>,
    /// The file for the state of the PMUs when QEMU ends.
    pub pmu_save: Option<PathBuf>,
    /// The file for the guest's progress: [`simrecord::progress`].
    pub progress: Option<PathBuf>,
}

impl Options {
    /// Reads `key=value` arguments.
    ///
    /// # Errors
    /// Says which argument is wrong and what would be right.
    pub fn parse<'a>(arguments: impl IntoIterator<Item = &'a str>) -> Result<Options, String> {
        let mut options = Options {
            out: PathBuf::new(),
            limit_ns: None,
            detail: Detail::Count,
            vcpu_slice: VCPU_SLICE_DEFAULT,
            model: None,
            also: Vec::new(),
            curves: false,
            misses: false,
            sampling: None,
            time: Time::Model,
            shift: 0,
            start_fast: false,
            spans: false,
            span_counts: false,
            transitions: false,
            services: false,
            locks: false,
            roi: Roi::Marker,
            symbols: None,
            offsets: None,
            annotate: None,
            qemu: String::new(),
            check: false,
            exits_all: false,
            disks: Vec::new(),
            pmu: false,
            pmu_state: None,
            pmu_save: None,
            progress: None,
        };
        for argument in arguments {
            let (key, value) = argument.split_once('=').unwrap_or((argument, ""));
            options.set(key, value)?;
        }
        if options.out.as_os_str().is_empty() && options.limit_ns.is_none() {
            return Err("out=FILE is missing".to_owned());
        }
        if !options.pmu && (options.pmu_state.is_some() || options.pmu_save.is_some()) {
            return Err("pmu_state= and pmu_save= need pmu=on".to_owned());
        }
        if options.has_shadow_caches() && options.detail != Detail::Count {
            return Err("also=FILE and curves=on are for detail=count".to_owned());
        }
        if options.misses && options.detail != Detail::Ooo {
            return Err("misses=on is for detail=ooo".to_owned());
        }
        if options.sampling.is_some() && (options.detail != Detail::Ooo || options.misses) {
            return Err("sample= is for detail=ooo without misses=on".to_owned());
        }
        match (options.detail, &options.model) {
            (Detail::Timed | Detail::Ooo, None) => {
                Err("detail=timed and detail=ooo need model=FILE".to_owned())
            }
            (Detail::Fast | Detail::Count, Some(_)) => {
                Err("model=FILE is for detail=timed and detail=ooo".to_owned())
            }
            _ => Ok(options),
        }
    }

    /// Whether shadow caches are wanted.
    #[must_use]
    pub fn has_shadow_caches(&self) -> bool {
        self.curves || !self.also.is_empty()
    }

    fn set(&mut self, key: &str, value: &str) -> Result<(), String> {
        let wrong = |right: &str| Err(format!("{key}={value}: must be {right}"));
        match (key, value) {
            ("out", path) => self.out = path.into(),
            ("symbols", path) => self.symbols = Some(path.into()),
            ("offsets", path) => self.offsets = Some(path.into()),
            ("annotate", path) => self.annotate = Some(path.into()),
            ("detail", "fast") => self.detail = Detail::Fast,
            ("detail", "count") => self.detail = Detail::Count,
            ("detail", "timed") => self.detail = Detail::Timed,
            ("detail", "ooo") => self.detail = Detail::Ooo,
            ("detail", _) => return wrong("fast, count, timed or ooo"),
            ("model", path) => self.model = Some(path.into()),
            ("also", path) if self.also.len() < ALSO_MAX => self.also.push(path.into()),
            ("also", _) => return wrong(&format!("given at most {ALSO_MAX} times")),
            ("curves", "on" | "off") => self.curves = value == "on",
            ("curves", _) => return wrong("on or off"),
            ("sample", text) => match Sampling::parse(text) {
                Some(sampling) => self.sampling = Some(sampling),
                None => return wrong("PERIOD:WARMING:UNIT:SEED, with WARMING + UNIT <= PERIOD"),
            },
            ("misses", "on" | "off") => self.misses = value == "on",
            ("misses", _) => return wrong("on or off"),
            ("time", "model") => self.time = Time::Model,
            ("time", "uniform") => self.time = Time::Uniform,
            ("time", "host") => self.time = Time::Host,
            ("time", _) => return wrong("model, uniform or host"),
            ("start", "fast" | "full") => self.start_fast = value == "fast",
            ("start", _) => return wrong("fast or full"),
            ("spans", "on" | "off" | "counts") => {
                (self.spans, self.span_counts) = (value != "off", value == "counts");
            }
            ("spans", _) => return wrong("on, off or counts"),
            ("transitions", "on" | "off") => self.transitions = value == "on",
            ("transitions", _) => return wrong("on or off"),
            ("services", "on" | "off" | "locks") => {
                (self.services, self.locks) = (value != "off", value == "locks");
            }
            ("services", _) => return wrong("on, off or locks"),
            ("shift", text) => match text.parse() {
                Ok(shift @ 0..=SHIFT_MAX) => self.shift = shift,
                _ => return wrong(&format!("a number, 0 to {SHIFT_MAX}")),
            },
            ("roi", "marker") => self.roi = Roi::Marker,
            ("roi", "always") => self.roi = Roi::Always,
            ("roi", _) => return wrong("marker or always"),
            ("check", "on" | "off") => self.check = value == "on",
            ("check", _) => return wrong("on or off"),
            ("exits", "all" | "needed") => self.exits_all = value == "all",
            ("exits", _) => return wrong("all or needed"),
            ("pmu", "on" | "off") => self.pmu = value == "on",
            ("pmu", _) => return wrong("on or off"),
            ("pmu_state", path) => self.pmu_state = Some(path.into()),
            ("pmu_save", path) => self.pmu_save = Some(path.into()),
            ("progress", path) => self.progress = Some(path.into()),
            ("vcpu_slice", text) => match text.parse() {
                Ok(vcpu_slice @ 1..=VCPU_SLICE_MAX) => self.vcpu_slice = vcpu_slice,
                _ => return wrong(&format!("a number of cycles, 1 to {VCPU_SLICE_MAX}")),
            },
            ("disk", text) => match disk(text) {
                Some(disk) if self.disks.len() < DISKS_MAX => self.disks.push(disk),
                _ => return wrong(&format!("NODE:LATENCY_NS, at most {DISKS_MAX} times")),
            },
            ("limit_ns", text) => match text.parse() {
                Ok(limit_ns @ 1..) => self.limit_ns = Some(limit_ns),
                _ => return wrong("nanoseconds, 1 or more"),
            },
            ("qemu", text) if text.len() <= VERSION_BYTES_MAX && text.is_ascii() => {
                self.qemu = text.to_owned();
            }
            ("qemu", _) => return wrong(&format!("ASCII of at most {VERSION_BYTES_MAX} bytes")),
            _ => return Err(format!("{key}: no such option")),
        }
        Ok(())
    }
}

fn disk(text: &str) -> Option<Disk> {
    let (node, latency_ns) = text.split_once(':')?;
    let latency_ns = latency_ns.parse().ok().filter(|ns| *ns <= LATENCY_NS_MAX)?;
    let fits = |sign: char| sign.is_ascii_alphanumeric() || matches!(sign, '-' | '_' | '.');
    let is_name = (1..=NODE_BYTES_MAX).contains(&node.len()) && node.chars().all(fits);
    is_name.then(|| Disk { node: node.to_owned(), latency_ns })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_said_has_a_default() {
        let options = Options::parse(["out=/r"]).unwrap();
        assert_eq!((options.detail, options.roi), (Detail::Count, Roi::Marker));
        assert_eq!((options.vcpu_slice, options.check), (VCPU_SLICE_DEFAULT, false));
        assert!(!options.pmu && !options.exits_all);
    }

    #[test]
    fn all_options_are_read() {
        let all = "out=/r,detail=fast,vcpu_slice=500,roi=always,symbols=/s,offsets=/o,qemu=11.1.3,check=on,\
             exits=all,disk=d0:5,pmu=on,pmu_state=/p,pmu_save=/q,limit_ns=7";
        let options = Options::parse(all.split(',')).unwrap();
        assert_eq!((options.detail, options.roi), (Detail::Fast, Roi::Always));
        assert_eq!((options.vcpu_slice, options.check), (500, true));
        assert_eq!((options.symbols, options.offsets), (Some("/s".into()), Some("/o".into())));
        assert_eq!((options.qemu.as_str(), options.limit_ns), ("11.1.3", Some(7)));
        assert_eq!(options.disks, [Disk { node: "d0".to_owned(), latency_ns: 5 }]);
        assert!(options.pmu && options.exits_all);
        assert_eq!((options.pmu_state, options.pmu_save), (Some("/p".into()), Some("/q".into())));
        let timed =
            "out=/r,detail=timed,model=/m,time=uniform,shift=2,spans=on,transitions=on,annotate=/a";
        let options = Options::parse(timed.split(',')).unwrap();
        assert_eq!((options.detail, options.time), (Detail::Timed, Time::Uniform));
        assert_eq!(options.annotate, Some("/a".into()));
        assert_eq!((options.model, options.shift), (Some("/m".into()), 2));
        assert!(options.spans && !options.span_counts && options.transitions);
        let options = Options::parse(["out=/r", "spans=counts"]).unwrap();
        assert!(options.spans && options.span_counts);
    }

    #[test]
    fn wrong_arguments_are_named() {
        for (argument, names) in [
            ("detail=slow", "fast, count, timed or ooo"),
            ("detail=timed", "model=FILE"),
            ("detail=ooo", "model=FILE"),
            ("curves=yes", "on or off"),
            ("misses=yes", "on or off"),
            ("sample=100:60:50:1", "WARMING + UNIT"),
            ("sample=100:60:40:1", "detail=ooo"),
            ("model=/m", "detail=timed"),
            ("time=now", "uniform"),
            ("shift=11", "0 to 10"),
            ("spans=", "on, off or counts"),
            ("transitions=yes", "on or off"),
            ("services=yes", "on, off or locks"),
            ("start=slow", "fast or full"),
            ("vcpu_slice=0", "1 to"),
            ("vcpu_slice=x", "1 to"),
            ("roi=", "marker or always"),
            ("check=yes", "on or off"),
            ("exits=on", "all or needed"),
            ("pmu=yes", "on or off"),
            ("pmu_save=/p", "need pmu=on"),
            ("qemu=11.1.3-and-a-long-tail", "16 bytes"),
            ("disk=a", "NODE:LATENCY_NS"),
            ("disk=:1", "NODE:LATENCY_NS"),
            ("disk=a,b:1", "NODE:LATENCY_NS"),
            ("disk=a:1000000001", "NODE:LATENCY_NS"),
            ("limit_ns=0", "1 or more"),
            ("spam=1", "no such option"),
        ] {
            let error = Options::parse(["out=/r", argument]).unwrap_err();
            assert!(error.contains(names), "{argument}: {error}");
        }
        assert!(Options::parse([]).unwrap_err().contains("out=FILE"));
        assert!(Options::parse(["limit_ns=1"]).is_ok());
    }
}
