//! The levels of `cargo xtask bench sim`: QEMU alone, irqlab's levels of detail, and QEMU's own cache plugin.

use std::path::Path;

use anyhow::{Context, ensure};
use sim::models::SAMPLE_PERIOD;
use sim::watch::{Detail, Roi, Watch};
use sim::{Cache, Timing, models};

use super::args::SimArgs;

/// A way to run a machine: a row of the table for each work.
pub struct Level {
    /// Name of the level in the table.
    pub name: String,
    /// The clock that guest time follows.
    pub timing: Timing,
    /// How irqlab's plugin observes the machine; `None` without the plugin.
    pub watch: Option<Watch>,
    /// Another plugin, with its options, as QEMU's `-plugin` takes it.
    pub plugin: Option<String>,
}

impl Level {
    /// Whether the level is so slow that it gets fewer rounds.
    pub fn is_slow(&self) -> bool {
        let is_ooo = |watch: &Watch| watch.detail == Detail::Ooo;
        self.plugin.is_some() || self.watch.as_ref().is_some_and(is_ooo)
    }
}

/// All levels that the options select.
pub fn levels(cache: &Cache, args: &SimArgs) -> anyhow::Result<Vec<Level>> {
    let (icount, host) = (Timing::Instructions { shift: 0 }, Timing::HostClock);
    let level =
        |name: &str, timing, watch| Level { name: name.to_owned(), timing, watch, plugin: None };
    let watch = |detail| Watch { detail, roi: Roi::Marker, start_fast: true, ..Watch::default() };
    let mut levels = vec![
        level("TCG", host, None),
        level("TCG+icount", icount, None),
        level("fast", icount, Some(watch(Detail::Fast))),
        level("count", icount, Some(watch(Detail::Count))),
    ];
    let timed_models = args.model.iter().map(|name| (Detail::Timed, "timed", name));
    let ooo_models = args.ooo.iter().map(|name| (Detail::Ooo, "ooo", name));
    for (detail, word, name) in timed_models.chain(ooo_models) {
        let model = Some(models::find(cache, name, &[], Some(detail))?);
        let watch = Watch { model, ..watch(detail) };
        // Only a model with an out-of-order core can be sampled.
        let sampled = if detail == Detail::Ooo { watch.model.as_ref() } else { None };
        let sampling = sampled.and_then(|model| model.sampling(SAMPLE_PERIOD).ok());
        levels.push(level(&format!("{word}, {name}"), icount, Some(watch.clone())));
        if sampling.is_some() {
            let watch = Watch { sampling, ..watch };
            levels.push(level(&format!("sampled, {name}"), icount, Some(watch)));
        }
    }
    if let Some(file) = &args.cache_plugin {
        let plugin = Some(cache_plugin(file)?);
        levels.push(Level { plugin, ..level("QEMU's cache plugin", icount, None) });
    }
    Ok(levels)
}

/// The option for QEMU's own cache plugin, with the caches of r4400-1994, which is the default model of `timed`. These
/// are two L1 caches of 16 KiB with lines of 16 bytes, and an L2 of 1 MiB with lines of 128 bytes.
fn cache_plugin(file: &Path) -> anyhow::Result<String> {
    let file = file.canonicalize().with_context(|| {
        let file = file.display();
        format!("--cache-plugin {file} (docs/bench-developers.md says how to build the plugin)")
    })?;
    let text = file.display().to_string();
    ensure!(!text.contains(','), "QEMU accepts no path with a comma (rename the file): {text}");
    Ok(format!(
        "{text},icachesize=16384,iassoc=2,iblksize=16,dcachesize=16384,dassoc=2,dblksize=16,\
         l2=on,l2cachesize=1048576,l2assoc=1,l2blksize=128"
    ))
}
