//! `irqlab sim rootfs`: makes the root file system of a guest from Debian packages. `--rootfs NAME` of other verbs of
//! `sim` uses it by [`find`].

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::bail;
use sim::rootfs::{self, RootFile, RootImage, RootSpec};
use sim::{Cache, workload};

use crate::console;
use crate::options::Usage;
use crate::simulated::size_text;

/// Make the root file system of a guest from Debian packages, and list its content
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  irqlab sim rootfs progdev                                   that of the workload progdev
  irqlab sim rootfs mine --add-package strace --add-package perl-base
  irqlab sim rootfs mine --add-package gcc --add-file hello.c:/srv/hello.c
  irqlab sim boot --rootfs mine -- 'strace -c ls'")]
pub struct RootfsArgs {
    /// Its name, for --rootfs: that of a workload, whose packages and files it then has, or your own
    name: String,
    /// A package of Debian 12, with what it depends on; may be repeated
    #[arg(long, value_name = "PACKAGE")]
    add_package: Vec<String>,
    /// A file of this machine, and where it is in the guest: FILE:/PATH; may be repeated
    #[arg(long, value_name = "FILE:PATH", value_parser = added_file)]
    add_file: Vec<(PathBuf, String)>,
    /// A path that is left out, with all below it; may be repeated
    #[arg(long, value_name = "PATH")]
    omit: Vec<String>,
    /// Download the packages again, in their newest versions
    #[arg(long)]
    again: bool,
}

/// Parses the value of `--add-file`: a file of this machine, and its path in the guest without the leading slash.
fn added_file(text: &str) -> Result<(PathBuf, String), String> {
    let (file, path) = text.rsplit_once(":/").ok_or("FILE:/PATH, as in hello.c:/srv/hello.c")?;
    Ok((file.into(), path.to_owned()))
}

/// Makes the root file system, keeps it under its name, and lists its content.
pub fn run(cache: &Cache, args: &RootfsArgs) -> anyhow::Result<ExitCode> {
    let mut spec = base(&args.name)?;
    spec.packages.extend(args.add_package.iter().cloned());
    spec.omit.extend(args.omit.iter().map(|path| path.trim_start_matches('/').to_owned()));
    for (file, path) in &args.add_file {
        spec.files.push(RootFile::of_host(Path::new(file), path)?);
    }
    let image = rootfs::image(cache, &spec, args.again, &console::say)?;
    rootfs::keep_as(cache, &args.name, &image)?;
    console::print(&image_text(&image))?;
    Ok(ExitCode::SUCCESS)
}

/// Returns the root file system of the workload with this name, or an empty one if no workload has the name.
fn base(name: &str) -> anyhow::Result<RootSpec> {
    if workload::names().contains(&name) {
        return Ok(workload::find(name, 1)?.root);
    }
    Ok(RootSpec::default())
}

/// Returns the image of `--rootfs NAME`: an image that was made before, or the image of a workload.
pub fn find(cache: &Cache, name: &str) -> anyhow::Result<RootImage> {
    if let Some(image) = rootfs::named(cache, name)? {
        return Ok(image);
    }
    if !workload::names().contains(&name) {
        let names = workload::names().join(", ");
        bail!(Usage(format!(
            "no root file system {name:?}; make it: irqlab sim rootfs {name} --add-package PACKAGE, or take \
             that of a workload: {names}"
        )));
    }
    Ok(rootfs::image(cache, &base(name)?, false, &console::say)?)
}

/// A description of the image for people: file, size, checksum and packages.
fn image_text(image: &RootImage) -> String {
    let mut text = format!(
        "image    {} ({})\n         sha256 {}\npackages {}\n",
        image.path.display(),
        size_text(image.bytes),
        image.sha256,
        image.packages.len(),
    );
    for package in &image.packages {
        let _ = writeln!(text, "         {} {}", package.name, package.version);
    }
    text
}
