//! The hidden verb that times single reads of a disk in a guest: the check of simulated drives (docs/sim.md).

use std::fs::OpenOptions;
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};

use crate::console;

pub const VERB: &str = "__timed-reads";

/// Alignment of buffers that every block device accepts for `O_DIRECT`.
const ALIGNMENT: usize = 4096;

/// The reads, and the pauses before them.
#[derive(Debug, clap::Args)]
pub struct TimedReadsArgs {
    /// The disk, as in /dev/vda
    disk: PathBuf,
    /// Bytes of each read: a multiple of 512
    #[arg(value_parser = clap::value_parser!(u32).range(512..=1 << 20))]
    bytes: u32,
    /// How often each place is read
    #[arg(value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    rounds: u64,
    /// The longest pause before a read, in microseconds. Pauses are random
    pause_us: u64,
    /// Where to read, in this order in each round: a sector of 512 bytes, `random`, or `next`, which follows the previous
    /// read
    #[arg(required = true)]
    places: Vec<String>,
}

/// The part of the disk that is read.
#[derive(Clone, Copy)]
enum ReadTarget {
    Sector(u64),
    Random,
    Next,
}

impl ReadTarget {
    fn parse(text: &str) -> anyhow::Result<ReadTarget> {
        Ok(match text {
            "random" => ReadTarget::Random,
            "next" => ReadTarget::Next,
            _ => ReadTarget::Sector(text.parse().with_context(|| format!("a sector: {text}"))?),
        })
    }
}

/// Reads, and prints a line for each place: the place, the number of reads, and their least, mean and largest time.
///
/// Fails if a read fails.
pub fn run(args: &TimedReadsArgs) -> anyhow::Result<ExitCode> {
    let name = args.disk.display().to_string();
    let direct = rustix::fs::OFlags::DIRECT.bits().cast_signed();
    let mut options = OpenOptions::new();
    let file = options.read(true).custom_flags(direct).open(&args.disk).context(name.clone())?;
    let size = rustix::fs::seek(&file, rustix::fs::SeekFrom::End(0))?;
    let bytes = u64::from(args.bytes);
    if size < bytes {
        bail!("{name} has {size} bytes");
    }
    let places =
        args.places.iter().map(|text| ReadTarget::parse(text)).collect::<Result<Vec<_>, _>>()?;
    let mut memory = vec![0_u8; bytes as usize + ALIGNMENT];
    let start = memory.as_ptr().align_offset(ALIGNMENT);
    let buffer = &mut memory[start..][..bytes as usize];
    let mut state = 1_u64;
    let mut random = |bound: u64| {
        // Knuth's generator for 64 bits; its high bits are random.
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % bound.max(1)
    };
    let mut times = vec![(u64::MAX, 0_u64, 0_u64); places.len()];
    let mut next = 0;
    for _ in 0..args.rounds {
        for (place, (least, sum, largest)) in places.iter().zip(&mut times) {
            let offset = match place {
                ReadTarget::Sector(sector) => sector.saturating_mul(512),
                ReadTarget::Random => random(size / bytes) * bytes,
                ReadTarget::Next => next,
            };
            if args.pause_us > 0 {
                std::thread::sleep(Duration::from_nanos(random(
                    args.pause_us.saturating_mul(1_000),
                )));
            }
            let begin = Instant::now();
            file.read_exact_at(buffer, offset).context(name.clone())?;
            let ns = begin.elapsed().as_nanos() as u64;
            (*least, *sum, *largest) = ((*least).min(ns), *sum + ns, (*largest).max(ns));
            next = offset + bytes;
        }
    }
    for (place, (least, sum, largest)) in args.places.iter().zip(times) {
        let mean = sum / args.rounds;
        console::print(&format!("{place} {} {least} {mean} {largest}\n", args.rounds))?;
    }
    Ok(ExitCode::SUCCESS)
}
