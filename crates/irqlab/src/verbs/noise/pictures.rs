//! Pictures of a run, as files.

use std::fs::File;
use std::io::Write;
use std::path::Path;

use anyhow::Context;
use record::Run;

/// The picture of repetitions, at a place of its own.
pub fn draw(run: &Run, file: &Path) -> anyhow::Result<()> {
    let svg = report::repetitions_svg(run).context("there is no repetition to draw")?;
    write(&svg, file)
}

/// All pictures, into the directory of the run; how many there are.
pub fn draw_all(run: &Run, directory: &Path) -> anyhow::Result<usize> {
    let pictures = report::pictures(run);
    pictures.iter().try_for_each(|(name, svg)| write(svg, &directory.join(name)))?;
    Ok(pictures.len())
}

fn write(svg: &str, file: &Path) -> anyhow::Result<()> {
    let cannot = || format!("cannot write {}; the run itself is recorded", file.display());
    let mut out = File::create_new(file).with_context(cannot)?;
    out.write_all(svg.as_bytes()).with_context(cannot)
}
