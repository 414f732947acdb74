//! `zerofleet bench`: how fast the parts are, measured against what bounds them in the same run.

pub mod kernel;
mod machine;
mod output;
mod plot;
pub mod search;
pub mod selfplay;
mod threads;

/// The middle; the upper one of an even number.
fn median(values: &[f64]) -> Option<f64> {
    let mut values = values.to_vec();
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied()
}

#[cfg(test)]
mod tests;
