//! Names and values that distinguish the rows of a report.

use std::fmt;

use serde::de::{MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Names and values in the order of the table columns; an object in JSON.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Dimensions(Vec<(String, String)>);

impl Dimensions {
    /// Adds a dimension after the existing ones.
    pub fn push(&mut self, name: &str, value: impl ToString) {
        self.0.push((name.to_owned(), value.to_string()));
    }

    /// Returns the value of a dimension; `None` if there is no such dimension.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(other, _)| other == name).map(|(_, value)| value.as_str())
    }

    /// Iterates over names and values.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(name, value)| (name.as_str(), value.as_str()))
    }

    /// Describes the first dimension with a different value in `other`.
    pub(crate) fn difference(&self, other: &Self) -> Option<String> {
        let mut names = self.iter().chain(other.iter()).map(|(name, _)| name);
        let name = names.find(|name| self.get(name) != other.get(name))?;
        let value = |dimensions: &Self| dimensions.get(name).unwrap_or("absent").to_owned();
        Some(format!("{name} is {}, and {} in the earlier report", value(self), value(other)))
    }
}

impl Serialize for Dimensions {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.iter())
    }
}

impl<'de> Deserialize<'de> for Dimensions {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct InOrder;

        impl<'de> Visitor<'de> for InOrder {
            type Value = Dimensions;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object of strings")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Dimensions, A::Error> {
                let mut dimensions = Vec::new();
                while let Some(entry) = map.next_entry()? {
                    dimensions.push(entry);
                }
                Ok(Dimensions(dimensions))
            }
        }

        deserializer.deserialize_map(InOrder)
    }
}
