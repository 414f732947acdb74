//! Conversions between the messages of the inference service and domain types.

pub(super) mod analysis;
pub(super) mod evaluation;

pub use analysis::analyse_from_wire;
pub use evaluation::{predictions_to_wire, rejection_to_wire};

#[cfg(test)]
mod tests;
