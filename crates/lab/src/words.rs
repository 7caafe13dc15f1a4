//! Enums whose variants are words on the command line and in tables.

/// A word that is not allowed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{given:?} is no {what}; allowed: {allowed}")]
pub struct UnknownWord {
    /// The kind of word, such as `stimulus`.
    pub what: &'static str,
    pub given: String,
    pub allowed: String,
}

/// For errors that are texts.
impl From<UnknownWord> for String {
    fn from(unknown: UnknownWord) -> String {
        unknown.to_string()
    }
}

/// Printing and parsing of an enum with a word for each variant.
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
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.pad(self.word())
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

/// An enum with a word for each variant, which is also the variant's form in JSON.
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
