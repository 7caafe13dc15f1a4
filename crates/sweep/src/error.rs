//! Why a sweep cannot be planned, read, executed or merged.

use std::io;
use std::path::{Path, PathBuf};

use thiserror::Error;

#[derive(Debug, Error)]
pub enum SweepError {
    /// The specification, an option or the sweep's state does not allow the request: an error of the user.
    #[error("{0}")]
    Invalid(String),
    /// A file of the sweep is damaged or was edited.
    #[error("{path}: {what}")]
    Damaged { path: PathBuf, what: String },
    /// The operating system refused an operation on a file.
    #[error("cannot {action} {path}: {source}")]
    Io { action: &'static str, path: PathBuf, source: io::Error },
    /// A recorded run cannot be read.
    #[error(transparent)]
    Run(#[from] record::ReadError),
}

impl SweepError {
    pub(crate) fn damaged(path: &Path, what: impl Into<String>) -> SweepError {
        SweepError::Damaged { path: path.to_owned(), what: what.into() }
    }

    /// Makes an error of reading `path`.
    pub(crate) fn reading(path: &Path) -> impl Fn(io::Error) -> SweepError + '_ {
        |source| SweepError::Io { action: "read", path: path.to_owned(), source }
    }

    /// Makes an error of writing `path`.
    pub(crate) fn writing(path: &Path) -> impl Fn(io::Error) -> SweepError + '_ {
        |source| SweepError::Io { action: "write", path: path.to_owned(), source }
    }
}

/// Makes the error of an output directory that cannot be made.
pub(crate) fn making(path: &Path) -> impl Fn(outputs::MakeDirectoryError) -> SweepError + '_ {
    |error| SweepError::writing(path)(io::Error::from(error))
}
