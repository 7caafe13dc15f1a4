//! The settings in effect, which a stimulus process reports to the measuring process. The keys are public: they
//! appear in the run.

use serde_json::{Map, Value};

/// Settings in effect, as [`Running::facts`](super::Running::facts) returns them.
pub(super) type Facts = Map<String, Value>;

/// Builds [`Facts`] from pairs.
macro_rules! facts {
    ($($key:literal : $value:expr),* $(,)?) => {{
        let mut map = serde_json::Map::new();
        $(map.insert($key.to_owned(), serde_json::json!($value));)*
        map
    }};
}
pub(super) use facts;
