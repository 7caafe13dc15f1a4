//! Terminal tables, Markdown, CSV and JSON from a run.
