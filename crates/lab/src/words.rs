//! Macros for enums whose variants are words on the command line, in tables and in JSON. The words are public.

/// The error for a word that is not allowed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{given:?} is no {what}; allowed: {allowed}")]
pub struct UnknownWord {
    /// The kind of word, such as `stimulus`.
    pub what: &'static str,
    pub given: String,
    pub allowed: String,
}

/// For parsers whose error is a text.
impl From<UnknownWord> for String {
    fn from(unknown: UnknownWord) -> String {
        unknown.to_string()
    }
}

/// Implements `ALL`, `word`, `Display` and `FromStr` for an enum, from a word for each variant. `$noun`: the kind of
/// word, for error messages.
macro_rules! words_of {
    ($name:ident, $noun:literal: $($variant:ident = $word:literal),+ $(,)?) => {
        impl $name {
            /// All variants, in the order of the tables.
            pub const ALL: &'static [$name] = &[$($name::$variant),+];

            /// The word on the command line and in results.
            #[must_use]
            pub fn word(self) -> &'static str {
                match self { $($name::$variant => $word),+ }
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                out.pad(self.word())
            }
        }

        impl std::str::FromStr for $name {
            type Err = $crate::words::UnknownWord;

            fn from_str(given: &str) -> Result<Self, Self::Err> {
                let known = Self::ALL.iter().copied().find(|known| known.word() == given);
                known.ok_or_else(|| $crate::words::UnknownWord {
                    what: $noun,
                    given: given.to_owned(),
                    allowed: [$($word),+].join(", "),
                })
            }
        }
    };
}

/// Defines an enum with a word for each variant. In JSON, a variant is its name in lower
/// case: the words must be equal to these names.
macro_rules! words {
    ($(#[$doc:meta])* $name:ident, $noun:literal: $($(#[$variant_doc:meta])* $variant:ident = $word:literal),+) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
        #[serde(rename_all = "lowercase")]
        pub enum $name { $($(#[$variant_doc])* $variant),+ }

        $crate::words::words_of!($name, $noun: $($variant = $word),+);
    };
}

pub(crate) use {words, words_of};
