//! Common code for the conversions between messages and domain types. The conversions are next to the clients: in
//! `replay/convert/`, `inference/convert/`, `weights/convert.rs` and `learners/convert.rs`.
//!
//! Conversions to the wire are `From` and cannot fail. Conversions from the wire are `TryFrom` and check everything
//! that can be checked without game rules: lengths, bounds, finite values, known enum values. The output needs no
//! further checks. Only the receiver validates. A message with fields that need no conversion has no second type: the
//! message is checked and passed on. An [`Invalid`] names the field as in the message; [`status`] converts it to an
//! `INVALID_ARGUMENT` with the same field in the details.

use std::time::Duration;

pub use experience::{Invalid, invalid};
use tonic::{Code, Status};
use tonic_types::{ErrorDetails, StatusExt as _};

use crate::limits::{NAME_BYTES_MAX, REASON_BYTES_MAX};
use crate::replay::MAIN_TABLE;

/// Returns `INVALID_ARGUMENT` with the field in the details (`google.rpc.BadRequest`).
#[must_use]
pub fn status(invalid: &Invalid) -> Status {
    let details = ErrorDetails::with_bad_request_violation(&invalid.field, &invalid.reason);
    Status::with_error_details(Code::InvalidArgument, invalid.to_string(), details)
}

/// Prefixes the field of an [`Invalid`] with the name of the outer field.
pub(crate) fn inside(outer: impl std::fmt::Display) -> impl FnOnce(Invalid) -> Invalid {
    move |Invalid { field, reason }| Invalid { field: format!("{outer}.{field}"), reason }
}

pub(crate) fn required<T>(field: &str, value: Option<T>) -> Result<T, Invalid> {
    value.ok_or_else(|| invalid(field, "is missing"))
}

/// Checks that a length does not exceed a limit; `unit` names the counted thing in the error.
pub(crate) fn at_most(field: &str, length: usize, unit: &str, limit: usize) -> Result<(), Invalid> {
    if length <= limit { Ok(()) } else { Err(invalid(field, format!("has {length} {unit}, the limit is {limit}"))) }
}

/// Checks that a length is between 1 and a limit.
pub(crate) fn one_to(field: &str, length: usize, unit: &str, limit: usize) -> Result<(), Invalid> {
    let is_within = (1..=limit).contains(&length);
    if is_within { Ok(()) } else { Err(invalid(field, format!("has {length} {unit}, expected 1 to {limit}"))) }
}

pub(crate) fn name(field: &str, value: String) -> Result<String, Invalid> {
    if value.is_empty() {
        return Err(invalid(field, "is empty"));
    }
    at_most(field, value.len(), "bytes", NAME_BYTES_MAX)?;
    Ok(value)
}

/// Checks a table name; an empty name stands for the main table.
pub(crate) fn table_name(field: &str, value: String) -> Result<String, Invalid> {
    if value.is_empty() { Ok(MAIN_TABLE.to_owned()) } else { name(field, value) }
}

/// Checks the length of a received text.
pub(crate) fn sentence<S: AsRef<str>>(field: &str, value: S) -> Result<S, Invalid> {
    at_most(field, value.as_ref().len(), "bytes", REASON_BYTES_MAX)?;
    Ok(value)
}

/// Truncates a text to the maximum length for receivers.
#[must_use]
pub fn cut(mut value: String) -> String {
    value.truncate(value.floor_char_boundary(REASON_BYTES_MAX));
    value
}

pub(crate) fn count(field: &str, value: u32) -> Result<usize, Invalid> {
    usize::try_from(value).map_err(|_| invalid(field, format!("{value} is too large for this machine")))
}

pub(crate) fn between(field: &str, value: u32, low: usize, high: usize) -> Result<usize, Invalid> {
    let value = count(field, value)?;
    if (low..=high).contains(&value) {
        Ok(value)
    } else {
        Err(invalid(field, format!("{value} is not between {low} and {high}")))
    }
}

/// Converts a count to the wire, where every count of a sender is below `u32::MAX`.
pub(crate) fn wire_count(count: usize) -> u32 {
    u32::try_from(count).unwrap_or(u32::MAX)
}

/// Converts a time to milliseconds; 0 stands for no time.
pub(crate) fn time_to_ms(time: Option<Duration>) -> u32 {
    time.map_or(0, |time| u32::try_from(time.as_millis()).unwrap_or(u32::MAX).max(1))
}

#[cfg(test)]
pub(crate) mod tests {
    use std::fmt::Debug;

    use experience::WeightsVersion;
    use proptest::prelude::*;
    use prost::Message;

    use super::*;

    pub(crate) fn names() -> impl Strategy<Value = String> {
        "[a-zé]{1,20}"
    }

    pub(crate) fn versions() -> impl Strategy<Value = WeightsVersion> {
        // Few versions, so that runs of equal versions occur.
        prop_oneof![(0_u64..3), Just(u64::MAX)].prop_map(WeightsVersion)
    }

    /// Encodes a message to bytes and decodes the bytes.
    pub(crate) fn sent<M: Message + Default>(message: M) -> M {
        M::decode(message.encode_to_vec().as_slice()).unwrap()
    }

    /// A change that makes a valid message invalid, and the text of the resulting error.
    pub(crate) type Case<M> = (fn(&mut M), &'static str);

    /// Asserts that `message` is rejected with the text `expected` after `change`.
    #[track_caller]
    pub(crate) fn refused<M: Clone, T: TryFrom<M, Error = Invalid> + Debug>(
        message: &M,
        change: impl FnOnce(&mut M),
        expected: &str,
    ) {
        let mut changed = message.clone();
        change(&mut changed);
        assert_eq!(T::try_from(changed).unwrap_err().to_string(), expected);
    }

    /// Overwrites a few bytes, then decodes the message and, on success, converts it.
    pub(crate) fn tampered<M: Message + Default, T: TryFrom<M, Error = Invalid>>(
        message: &M,
        changes: &[(proptest::sample::Index, u8)],
    ) {
        let mut bytes = message.encode_to_vec();
        for (at, byte) in changes {
            let at = at.index(bytes.len());
            bytes[at] = *byte;
        }
        if let Ok(Err(invalid)) = M::decode(bytes.as_slice()).map(T::try_from) {
            assert!(!invalid.field.is_empty() && !invalid.reason.is_empty(), "{invalid:?}");
        }
    }

    pub(crate) fn changes() -> impl Strategy<Value = Vec<(proptest::sample::Index, u8)>> {
        proptest::collection::vec(any::<(proptest::sample::Index, u8)>(), 1..4)
    }

    #[test]
    fn a_status_names_the_invalid_field_in_its_message_and_in_its_details() {
        use tonic_types::StatusExt as _;
        let status = status(&Invalid { field: "steps[3].policy".into(), reason: "is empty".into() });
        assert_eq!((status.code(), status.message()), (tonic::Code::InvalidArgument, "steps[3].policy: is empty"));
        let violation = &status.get_details_bad_request().unwrap().field_violations[0];
        assert_eq!((violation.field.as_str(), violation.description.as_str()), ("steps[3].policy", "is empty"));
    }
}
