//! Why a fleet's directory cannot be made, read or filled.

use std::io;
use std::path::{Path, PathBuf};

use thiserror::Error;

#[derive(Debug, Error)]
pub enum FleetError {
    /// The list of hosts, an option or the fleet's directory does not allow the request: an error of the user.
    #[error("{0}")]
    Invalid(String),
    /// A file of the fleet's directory is damaged.
    #[error("{path}: {what}")]
    Damaged { path: PathBuf, what: String },
    /// The operating system refused an operation on a file of this machine.
    #[error("cannot {action} {path}: {source}")]
    Io { action: &'static str, path: PathBuf, source: io::Error },
    /// A host sent something that is not allowed, or the connection to it failed.
    #[error("{0}")]
    Host(String),
}

impl FleetError {
    pub(crate) fn damaged(path: &Path, what: impl Into<String>) -> FleetError {
        FleetError::Damaged { path: path.to_owned(), what: what.into() }
    }

    /// Makes an error of reading `path`.
    pub(crate) fn reading(path: &Path) -> impl Fn(io::Error) -> FleetError + '_ {
        |source| FleetError::Io { action: "read", path: path.to_owned(), source }
    }

    /// Makes an error of writing `path`.
    pub(crate) fn writing(path: &Path) -> impl Fn(io::Error) -> FleetError + '_ {
        |source| FleetError::Io { action: "write", path: path.to_owned(), source }
    }
}

/// Makes the error of an output directory that cannot be made.
pub(crate) fn making(path: &Path) -> impl Fn(outputs::MakeDirectoryError) -> FleetError + '_ {
    |error| FleetError::writing(path)(io::Error::from(error))
}
