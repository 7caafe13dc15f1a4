//! The option `--pictures`, for the verbs that can draw their results. The pictures are attachments of the run.

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
    pub fn are_wanted(self) -> bool {
        self.pictures
    }

    /// Draws a run if `--pictures` was given. If drawing fails, prints why, and the run is recorded without pictures.
    pub fn draw(self, run: &Run) -> Vec<Attachment> {
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
                console::warn(&format!(
                    "cannot draw pictures: {error}; the tables have all numbers"
                ));
                Vec::new()
            }
        }
    }
}
