//! Names of columns for axes, and suggestions for misspelt names. `spec` and `irqlab sweep plan` call it.

use record::limits::NAME_BYTES_MAX;

/// Start of the name of every axis's column.
pub(crate) const COLUMN_PREFIX: &str = "axis_";

/// Maximum number of suggested names.
const SUGGESTIONS_MAX: usize = 3;

/// The column of an axis in a merged data set: `axis_` and the words of the name, joined by `_`. `name`: an
/// option without its dashes, a field, or a placeholder.
///
/// Returns `None` if the name has no letter or digit, or is too long.
#[must_use]
pub fn column_name(name: &str) -> Option<String> {
    let parts = name.split(|sign: char| !sign.is_ascii_alphanumeric());
    let name_words: Vec<&str> = parts.filter(|part| !part.is_empty()).collect();
    let column = format!("{COLUMN_PREFIX}{}", name_words.join("_").to_ascii_lowercase());
    (!name_words.is_empty() && column.len() <= NAME_BYTES_MAX).then_some(column)
}

/// The most similar names by edit distance, at most three, the most similar first.
#[must_use]
pub fn nearest<'a>(name: &str, names: impl Iterator<Item = &'a str>) -> Vec<&'a str> {
    let steps_max = name.len() / 3 + 1;
    let mut similar: Vec<(usize, &str)> = names
        .map(|candidate| (strsim::levenshtein(name, candidate), candidate))
        .filter(|(steps, _)| *steps <= steps_max)
        .collect();
    similar.sort_unstable();
    similar.dedup();
    similar.into_iter().take(SUGGESTIONS_MAX).map(|(_, candidate)| candidate).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_have_names_that_every_reader_accepts() {
        assert_eq!(column_name("seed").as_deref(), Some("axis_seed"));
        assert_eq!(column_name("guest-limit").as_deref(), Some("axis_guest_limit"));
        assert_eq!(column_name("l2.size").as_deref(), Some("axis_l2_size"));
        assert_eq!(column_name("--"), None);
        assert_eq!(column_name(&"x".repeat(65)), None);
    }

    #[test]
    fn the_most_similar_names_come_first() {
        let names = ["--seed", "--seeds", "--set", "--duration"];
        assert_eq!(nearest("--sed", names.into_iter()), ["--seed", "--set", "--seeds"]);
        assert!(nearest("--moon", names.into_iter()).is_empty());
    }
}
