//! Errors of the simulated bench. Experiments get them as [`BenchError`].

use std::io;
use std::path::{Path, PathBuf};

use lab::experiment::BenchError;

/// An error of the simulated bench.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SimError {
    /// A file could not be read or written.
    #[error("{}: {source}", path.display())]
    File { path: PathBuf, source: io::Error },
    /// A system call failed.
    #[error("{doing} failed: {source}")]
    System {
        /// The purpose of the call, such as `reading the record`.
        doing: &'static str,
        source: io::Error,
    },
    /// A setting is invalid, or settings contradict each other.
    #[error("{0}")]
    Invalid(String),
    /// Something is missing on this machine, and can be installed.
    #[error("{what}\nto get it:\n  {remedy}")]
    Missing {
        /// The missing thing, and the places where irqlab searched for it.
        what: String,
        /// A command line, or a sentence.
        remedy: String,
    },
    /// A QEMU that was named explicitly is not supported.
    #[error("{program} {why}")]
    QemuUnfit {
        program: String,
        /// The property of the program that irqlab does not support, and irqlab's requirement.
        why: String,
    },
    /// A helper program failed.
    #[error("{program}: {detail}")]
    Program {
        /// The program with its first arguments.
        program: String,
        /// How it ended, and its last lines of output.
        detail: String,
    },
    /// The machine did not execute its request.
    #[error("{what}{}", tail_text(console, qemu))]
    Machine {
        /// The failure, as a sentence.
        what: String,
        /// The last lines of the console.
        console: String,
        /// The last lines that QEMU itself wrote.
        qemu: String,
    },
    /// A limit on the guest's time or on the host's clock ended the machine before it had executed its request.
    #[error("{what}{}", tail_text(console, qemu))]
    TimeLimit {
        /// The limit, and how far the guest had come.
        what: String,
        /// The last lines of the console.
        console: String,
        /// The last lines that QEMU itself wrote.
        qemu: String,
    },
    /// QEMU's monitor refused a command, or violated its protocol.
    #[error("QEMU's monitor: {0}")]
    Monitor(String),
    /// The state of a machine could not be written.
    #[error("the state of the machine cannot be saved: {0}")]
    Unsaved(String),
    /// The user asked to stop.
    #[error("stopped")]
    Stopped,
    /// A checkpoint does not exist, or belongs to another machine.
    #[error("checkpoint {name}: {reason}")]
    Checkpoint {
        name: String,
        /// Why it cannot be used.
        reason: String,
    },
    /// Data from the guest or a file is malformed.
    #[error("{what}: {reason}")]
    Data {
        what: String,
        /// Why the data is malformed.
        reason: String,
    },
}

impl SimError {
    /// Converts the error of a file operation.
    pub(crate) fn file(path: &Path) -> impl FnOnce(io::Error) -> SimError {
        let path = path.to_owned();
        move |source| SimError::File { path, source }
    }

    /// Converts the error of a system call.
    pub(crate) fn system(doing: &'static str) -> impl FnOnce(io::Error) -> SimError {
        move |source| SimError::System { doing, source }
    }

    /// Reports malformed data.
    pub(crate) fn data(what: impl Into<String>, reason: impl Into<String>) -> SimError {
        SimError::Data { what: what.into(), reason: reason.into() }
    }
}

impl From<SimError> for BenchError {
    fn from(error: SimError) -> BenchError {
        match error {
            SimError::Checkpoint { .. } => BenchError::Failed(format!(
                "{error}\n(an experiment needs a checkpoint that this irqlab made with --with-irqlab. Without --disk, \
                 handlers --stimulus disk needs one made with --disk virtio-blk)"
            )),
            SimError::Missing { what, remedy } => {
                BenchError::NothingMeasurable { reason: what, remedy: Some(remedy) }
            }
            SimError::TimeLimit { .. } => BenchError::TimeLimit(error.to_string()),
            other => BenchError::Failed(other.to_string()),
        }
    }
}

/// Returns the last lines of the console and of QEMU, for a message.
fn tail_text(console: &str, qemu: &str) -> String {
    let part = |title: &str, text: &str| {
        if text.trim().is_empty() {
            String::new()
        } else {
            let lines: Vec<String> = text.lines().map(|line| format!("  | {line}")).collect();
            format!("\n{title}:\n{}", lines.join("\n"))
        }
    };
    let console = if console.trim().is_empty() {
        "\nthe console is empty".to_owned()
    } else {
        part("last lines of the console", console)
    };
    console + &part("last lines of QEMU", qemu)
}
