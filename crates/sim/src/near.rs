//! Names near to one that is not there.

/// Most names that are suggested.
const SUGGESTIONS_MAX: usize = 5;

/// The nearest of the names, by the number of signs to change; at most five, nearest first.
pub(crate) fn nearest<'a>(name: &str, names: impl Iterator<Item = &'a str>) -> Vec<&'a str> {
    let budget = name.len() / 3 + 1;
    let mut near: Vec<(usize, &str)> = Vec::new();
    for other in names {
        if other.len().abs_diff(name.len()) > budget && !other.contains(name) {
            continue;
        }
        let steps = if !name.is_empty() && other.contains(name) {
            1
        } else {
            distance(name.as_bytes(), other.as_bytes())
        };
        if steps <= budget {
            near.push((steps, other));
        }
    }
    near.sort_by_key(|(steps, other)| (*steps, other.len(), *other));
    near.dedup();
    near.into_iter().take(SUGGESTIONS_MAX).map(|(_, other)| other).collect()
}

/// `; near: ...`, or nothing if none is near.
pub(crate) fn hint<'a>(name: &str, names: impl Iterator<Item = &'a str>) -> String {
    let near = nearest(name, names).join(", ");
    if near.is_empty() { near } else { format!("; near: {near}") }
}

/// Levenshtein distance.
fn distance(left: &[u8], right: &[u8]) -> usize {
    let mut row: Vec<usize> = (0..=right.len()).collect();
    for (i, a) in left.iter().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, b) in right.iter().enumerate() {
            let substituted = diagonal + usize::from(a != b);
            diagonal = row[j + 1];
            row[j + 1] = substituted.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row.last().copied().unwrap_or(0)
}
