use weights::WeightsVersion;

use super::{Invalid, count, invalid};
use crate::replay::v1;

pub(super) fn to_wire(versions: impl Iterator<Item = WeightsVersion>) -> Vec<v1::VersionRun> {
    let mut runs: Vec<v1::VersionRun> = Vec::new();
    for WeightsVersion(version) in versions {
        match runs.last_mut() {
            Some(run) if run.version == version => run.steps += 1,
            _ => runs.push(v1::VersionRun { version, steps: 1 }),
        }
    }
    runs
}

/// One version for each of `steps`; the caller has bounded `steps`.
pub(super) fn from_wire(runs: Vec<v1::VersionRun>, steps: usize) -> Result<Vec<WeightsVersion>, Invalid> {
    let mut versions = Vec::with_capacity(steps);
    for (index, v1::VersionRun { version, steps: run }) in runs.into_iter().enumerate() {
        let run = count("versions", run)?;
        if run == 0 {
            return Err(invalid(format!("versions[{index}].steps"), "is zero"));
        }
        if run > steps - versions.len() {
            return Err(invalid("versions", format!("run over the {steps} steps")));
        }
        versions.resize(versions.len() + run, WeightsVersion(version));
    }
    if versions.len() < steps {
        return Err(invalid("versions", format!("cover {} of {steps} steps", versions.len())));
    }
    Ok(versions)
}
