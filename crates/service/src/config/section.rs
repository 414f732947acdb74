//! The declaration of a section of the run file: each key once, with type, default, range and documentation.

use std::fmt::Display;
use std::ops::{Bound, RangeBounds};

use super::ConfigError;

/// A key of a section, as declared.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Key {
    /// Name below the section.
    pub name: &'static str,
    /// Documentation in Markdown, on one line.
    pub doc: String,
    /// Valid values, such as `from 0 to 1`; `None` if the type is the only restriction.
    pub range: Option<String>,
    /// Link to the page in `docs/` that describes the key, if any.
    pub page: Option<&'static str>,
}

impl Key {
    /// Returns the key `name` with a doc comment, which may have several lines.
    #[doc(hidden)]
    #[must_use]
    pub fn new(name: &'static str, doc: &str, range: Option<String>, page: Option<&'static str>) -> Self {
        Self { name, doc: doc.trim().to_owned(), range, page }
    }
}

/// A section that is declared by [`section!`](crate::section).
pub trait Section {
    /// Returns all keys, in the order of the declaration.
    fn keys() -> Vec<Key>;

    /// Checks that every key is in its range. `section` is the name of the section in errors.
    ///
    /// # Errors
    /// [`ConfigError`] names the first key out of range.
    fn check_ranges(&self, section: &str) -> Result<(), ConfigError>;
}

/// A value with a range: a number, or a list whose elements have the range.
#[doc(hidden)]
pub trait Ranged<T> {
    /// Returns the values that must be in the range.
    fn values(&self) -> &[T];
}

impl<T> Ranged<T> for T {
    fn values(&self) -> &[T] {
        std::slice::from_ref(self)
    }
}

impl<T> Ranged<T> for Vec<T> {
    fn values(&self) -> &[T] {
        self
    }
}

/// Checks that `value`, or every element of a list, is in `range`.
#[doc(hidden)]
pub fn check_range<T: PartialOrd + Display + Copy>(
    section: &str,
    key: &str,
    value: &impl Ranged<T>,
    range: impl RangeBounds<T> + Clone,
) -> Result<(), ConfigError> {
    let mut values = value.values().iter();
    values.try_for_each(|&value| ConfigError::within(format!("{section}.{key}"), value, range.clone()).map(drop))
}

/// Returns the range above `low` and at most `high`.
#[must_use]
pub fn above_to<T>(low: T, high: T) -> (Bound<T>, Bound<T>) {
    (Bound::Excluded(low), Bound::Included(high))
}

/// Describes a range in words: `from 0 to 1`, `at least 1`, or `above 0 and at most 1`.
pub fn describe<T: Display>(range: &impl RangeBounds<T>) -> String {
    match (range.start_bound(), range.end_bound()) {
        (Bound::Included(low), Bound::Included(high)) => format!("from {low} to {high}"),
        (low, high) => {
            let low = match low {
                Bound::Included(low) => Some(format!("at least {low}")),
                Bound::Excluded(low) => Some(format!("above {low}")),
                Bound::Unbounded => None,
            };
            let high = match high {
                Bound::Included(high) => Some(format!("at most {high}")),
                Bound::Excluded(high) => Some(format!("below {high}")),
                Bound::Unbounded => None,
            };
            low.into_iter().chain(high).collect::<Vec<_>>().join(" and ")
        }
    }
}

/// Declares a section of the run file. Each key has documentation, a type and a default, then optionally a range and a
/// link to a page in `docs/`. The macro generates the struct with its defaults and implements [`Section`].
///
/// A `flatten` entry at the start adds the keys of another section. The tests of [`config`](crate::config) declare a
/// section with every form of a key.
#[macro_export]
macro_rules! section {
    (
        $(#[$attribute:meta])*
        pub struct $section:ident {
            $(flatten $part:ident: $part_type:ty;)?
            $(
                $(#[doc = $doc:literal])+
                $key:ident: $type:ty = $default:expr $(, in $range:expr)? $(, page $page:literal)?;
            )*
        }
    ) => {
        #[derive(Debug, Clone, PartialEq, serde::Serialize, serde::Deserialize)]
        #[serde(default)]
        $(#[$attribute])*
        pub struct $section {
            $(
                #[doc = concat!("The keys of [`", stringify!($part_type), "`].")]
                #[serde(flatten)]
                pub $part: $part_type,
            )?
            $($(#[doc = $doc])+ pub $key: $type,)*
        }

        impl Default for $section {
            fn default() -> Self {
                Self { $($part: <$part_type>::default(),)? $($key: $default,)* }
            }
        }

        impl $crate::config::Section for $section {
            fn keys() -> Vec<$crate::config::Key> {
                let parts: &[fn() -> Vec<$crate::config::Key>] = &[$(<$part_type as $crate::config::Section>::keys)?];
                let own = [$($crate::config::Key::new(
                    stringify!($key),
                    concat!($($doc),+),
                    None$(.or(Some($crate::config::describe(&$range))))?,
                    None$(.or(Some($page)))?,
                )),*];
                parts.iter().flat_map(|keys| keys()).chain(own).collect()
            }

            #[allow(unused_variables, reason = "a section may have no range")]
            fn check_ranges(&self, section: &str) -> Result<(), $crate::ConfigError> {
                $($crate::config::Section::check_ranges(&self.$part, section)?;)?
                $($($crate::config::check_range(section, stringify!($key), &self.$key, $range)?;)?)*
                Ok(())
            }
        }
    };
}
