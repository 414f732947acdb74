//! Conversions between messages and domain types, one file per family.
//!
//! Conversions to the wire are `From` and cannot fail. Conversions from the wire are `TryFrom` and check everything
//! that can be checked without game rules: lengths, bounds, finite values, known enum values. The output needs no
//! further checks. Only the receiver validates. Statistics have no second type: the messages are checked and passed
//! on. An [`Invalid`] names the field as in the message; [`status`] converts it to an `INVALID_ARGUMENT` with the
//! same field in the details.

pub(crate) mod analysis;
pub(crate) mod evaluation;
pub(crate) mod insert;
pub(crate) mod learners;
pub(crate) mod operator;
pub(crate) mod revise;
pub(crate) mod sample;
pub(crate) mod table;
pub(crate) mod trajectory;
pub(crate) mod weights;

pub use analysis::analyse_from_wire;
pub use evaluation::{predictions_to_wire, rejection_to_wire};
pub use experience::Invalid;
pub use insert::trace_of;
pub use revise::{choice_to_wire, revision_from_wire};
pub use sample::{batch_to_wire, waiting_to_wire};

use crate::limits::{NAME_BYTES_MAX, REASON_BYTES_MAX};
use crate::replay::MAIN_TABLE;
pub use crate::status::{RETRY_AFTER, retry_after, status};

pub(crate) fn invalid(field: impl Into<String>, reason: impl Into<String>) -> Invalid {
    Invalid { field: field.into(), reason: reason.into() }
}

/// Prefixes the field of an [`Invalid`] with the name of the outer field.
fn inside(outer: impl std::fmt::Display) -> impl FnOnce(Invalid) -> Invalid {
    move |Invalid { field, reason }| Invalid { field: format!("{outer}.{field}"), reason }
}

pub(crate) fn required<T>(field: &str, value: Option<T>) -> Result<T, Invalid> {
    value.ok_or_else(|| invalid(field, "is missing"))
}

fn name(field: &str, value: String) -> Result<String, Invalid> {
    match value.len() {
        0 => Err(invalid(field, "is empty")),
        bytes if bytes > NAME_BYTES_MAX => {
            Err(invalid(field, format!("has {bytes} bytes, the limit is {NAME_BYTES_MAX}")))
        }
        _ => Ok(value),
    }
}

/// Checks the name of a table; an empty name stands for the main table.
fn table_name(field: &str, value: String) -> Result<String, Invalid> {
    if value.is_empty() { Ok(MAIN_TABLE.to_owned()) } else { name(field, value) }
}

/// Checks the length of a received text.
fn sentence<S: AsRef<str>>(field: &str, value: S) -> Result<S, Invalid> {
    match value.as_ref().len() {
        bytes if bytes > REASON_BYTES_MAX => {
            Err(invalid(field, format!("has {bytes} bytes, the limit is {REASON_BYTES_MAX}")))
        }
        _ => Ok(value),
    }
}

/// Truncates a text to the maximum length for receivers.
#[must_use]
pub fn cut(mut value: String) -> String {
    value.truncate(value.floor_char_boundary(REASON_BYTES_MAX));
    value
}

fn count(field: &str, value: u32) -> Result<usize, Invalid> {
    usize::try_from(value).map_err(|_| invalid(field, format!("{value} is too large for this machine")))
}

fn between(field: &str, value: u32, low: usize, high: usize) -> Result<usize, Invalid> {
    let value = count(field, value)?;
    if (low..=high).contains(&value) {
        Ok(value)
    } else {
        Err(invalid(field, format!("{value} is not between {low} and {high}")))
    }
}

/// Checks that there are exactly `expected` entries.
pub(crate) fn length(field: &str, got: usize, expected: usize) -> Result<(), Invalid> {
    if got == expected { Ok(()) } else { Err(invalid(field, format!("has {got} entries, expected {expected}"))) }
}

fn finite(field: &str, values: &[f32]) -> Result<(), Invalid> {
    match values.iter().position(|value| !value.is_finite()) {
        Some(index) => Err(invalid(format!("{field}[{index}]"), "is not finite")),
        None => Ok(()),
    }
}

/// Converts a count to the wire: the counts of a sender are below `u32::MAX`.
fn wire_count(count: usize) -> u32 {
    u32::try_from(count).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests;
