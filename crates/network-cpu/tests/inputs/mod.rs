//! Weights and positions for a kernel.

use game::{Action, ObservationShape};
use inference::Batch;
use weights::{Manifest, WeightsVersion};

use crate::published::architecture;

/// Returns the manifest of a version with these bytes.
pub(crate) fn manifest(version: u64, bytes: &[u8]) -> Manifest {
    Manifest::of(bytes, WeightsVersion(version), version, architecture())
}

/// Enough positions for a sample.
pub(crate) fn positions() -> Batch {
    let mut batch = Batch::new(ObservationShape { planes: 2, height: 3, width: 3 });
    for position in 0..4096_usize {
        batch.push(&[Action(0), Action(4), Action(8)], |planes| {
            for (index, plane) in planes.iter_mut().enumerate() {
                *plane = f32::from((position * 31 + index * index * 7 + position / 5) % 3 == 0);
            }
        });
    }
    batch
}
