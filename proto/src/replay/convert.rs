//! Conversions between the messages of the replay service and domain types, with one file for each group of messages.

pub(super) mod insert;
pub(super) mod operator;
pub(super) mod revise;
pub(super) mod sample;
mod search;
pub(super) mod table;
pub(super) mod trajectory;

pub use insert::trace_of;
pub use operator::change_from_wire;
pub use revise::{choice_to_wire, revision_from_wire};
pub use sample::{batch_to_wire, waiting_to_wire};

#[cfg(test)]
mod tests;
