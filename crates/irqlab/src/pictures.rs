//! `--pictures`: what the verbs that draw have in common.

use record::{Attachment, Run};
use report::Picture;

use crate::console;

/// Whether to draw.
#[derive(Clone, Copy, Debug, clap::Args)]
#[command(next_help_heading = "Results")]
pub struct PictureArgs {
    /// Draw the results as SVG files in the run's directory
    #[arg(long)]
    pictures: bool,
}

impl PictureArgs {
    /// Whether they were asked for.
    pub fn are_wanted(self) -> bool {
        self.pictures
    }

    /// The pictures of a run, if they are wanted. Where they cannot be drawn, the run is recorded without.
    pub fn of(self, run: &Run) -> Vec<Attachment> {
        if !self.pictures {
            return Vec::new();
        }
        match report::pictures(run) {
            Ok(pictures) => {
                if pictures.is_empty() {
                    console::warn("--pictures: this run has nothing to draw");
                }
                let attachment = |picture: Picture| Attachment {
                    name: format!("{}.svg", picture.name),
                    contents: picture.sheet.file().into_bytes(),
                };
                pictures.into_iter().map(attachment).collect()
            }
            Err(error) => {
                console::warn(&format!("cannot draw: {error}; the tables have all numbers"));
                Vec::new()
            }
        }
    }
}
