//! Decides whether a version may be computed with integers.

use std::sync::Arc;

use inference::Batch;

use crate::folded::Folded;
use crate::{Drift, Error, KernelVariant, Tower};

/// A version in integers.
#[derive(Debug)]
pub(crate) enum Integers {
    /// Answers as floating point does.
    Near(Arc<Tower>),
    /// Does not.
    Far(Drift),
}

/// The widest path of integers that the CPU has; plain Rust is no faster than floating point.
pub(crate) fn widest() -> Option<KernelVariant> {
    KernelVariant::INT8.into_iter().find(|&path| path != KernelVariant::PortableI8 && path.is_available())
}

/// Calibrates a version on every other position of the sample, and checks it against the same version in floating point
/// on those between.
///
/// # Errors
/// As [`Tower::new`].
pub(crate) fn quantise(
    folded: &Folded,
    path: KernelVariant,
    float: &Arc<Tower>,
    sample: &Batch,
) -> Result<Integers, Error> {
    let (calibration, check) = (every_other(sample, 0), every_other(sample, 1));
    let observations = calibration.observations();
    let ranges = match float.path() == path.base() {
        true => float.ranges(observations),
        false => Tower::from_folded(folded, path.base(), None)?.ranges(observations),
    };
    let tower = Arc::new(Tower::from_folded(folded, path, Some(&ranges))?);
    let drift = Drift::on(&check, float, &tower);
    Ok(if drift.is_small() { Integers::Near(tower) } else { Integers::Far(drift) })
}

fn every_other(sample: &Batch, first: usize) -> Batch {
    let mut half = Batch::new(sample.shape());
    for index in (first..sample.len()).step_by(2) {
        half.push(sample.legal(index), |planes| planes.copy_from_slice(sample.observation(index)));
    }
    half
}
