//! Stores earlier weights versions as opponents: the best-rated versions, and others spread evenly over the run on a
//! logarithmic scale.
//!
//! Stored versions survive a restart. A match reads the weights from disk. Start with [`PastVersions`].

use std::path::Path;

use strength::ledger::{Rated, best};
use version_store::{Retention, VersionStore};
use weights::{Manifest, WeightsVersion};

/// The kept versions.
#[derive(Debug)]
pub(crate) struct PastVersions {
    store: VersionStore,
    limits: Limits,
    /// Kept versions, ascending.
    versions: Vec<WeightsVersion>,
    /// A version that is never removed, whatever its rating.
    protected: Option<WeightsVersion>,
}

/// Maximum numbers of kept versions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Limits {
    /// Number of versions spread over the run.
    pub(crate) spread_max: usize,
    /// Number of best rated versions kept in addition.
    pub(crate) best_max: usize,
}

impl PastVersions {
    /// Finds the versions that an earlier process kept in the run directory.
    ///
    /// # Errors
    /// The directory cannot be listed.
    pub(crate) fn open(run: &Path, limits: Limits) -> anyhow::Result<Self> {
        let store = VersionStore::of_arena(run);
        Ok(Self { versions: store.versions()?, store, limits, protected: None })
    }

    /// Returns the kept versions, ascending.
    pub(crate) fn versions(&self) -> &[WeightsVersion] {
        &self.versions
    }

    /// Reads a version and checks the digest.
    ///
    /// # Errors
    /// A file cannot be read or is damaged.
    pub(crate) fn read(&self, version: WeightsVersion) -> anyhow::Result<(Manifest, Vec<u8>)> {
        self.store.read(version)
    }

    /// Protects this version from removal, in place of the version protected before.
    pub(crate) fn protect(&mut self, version: WeightsVersion) {
        self.protected = Some(version);
    }

    /// Keeps a version, and removes older versions beyond the limits.
    ///
    /// # Errors
    /// The version cannot be written.
    pub(crate) fn keep(&mut self, manifest: &Manifest, bytes: &[u8], ratings: &[Rated]) -> anyhow::Result<()> {
        let Limits { spread_max: count, best_max } = self.limits;
        let is_protected = self.protected == Some(manifest.version);
        if self.versions.contains(&manifest.version) || (count == 0 && best_max == 0 && !is_protected) {
            return Ok(());
        }
        self.versions.push(manifest.version);
        let mut kept = best(ratings, &self.versions, best_max);
        kept.extend(self.protected);
        let written = self.store.write(manifest, bytes, Retention::Spread { count, kept: &kept });
        self.versions = self.store.versions()?;
        written
    }

    /// Removes an unusable version.
    ///
    /// # Errors
    /// A file cannot be removed.
    pub(crate) fn remove(&mut self, version: WeightsVersion) -> anyhow::Result<()> {
        self.versions.retain(|&kept| kept != version);
        self.store.remove(version)
    }
}

#[cfg(test)]
mod tests {
    //! Tests the selection of versions.

    use strength::ledger::Player;
    use tempfile::TempDir;
    use weights::Architecture;

    use super::*;

    fn bytes(version: u64) -> Vec<u8> {
        format!("weights {version}").into_bytes()
    }

    fn manifest(version: u64) -> Manifest {
        let bytes = bytes(version);
        let architecture = Architecture::plain("connect_four", [3, 6, 7], 7, [8, 1]);
        Manifest::of(&bytes, WeightsVersion(version), 10 * version, architecture)
    }

    fn versions(past: &PastVersions) -> Vec<u64> {
        past.versions().iter().map(|version| version.0).collect()
    }

    /// Keeps all versions up to `last`; versions in `best` are rated above all other versions, the first highest.
    fn keep_rated(folder: &TempDir, limits: Limits, last: u64, best: &[u64]) -> PastVersions {
        let mut past = PastVersions::open(folder.path(), limits).unwrap();
        for version in 1..=last {
            let rated = |version: u64| {
                let place = best.iter().position(|&best| best == version);
                let low = place.map_or(0.0, |place| 500.0 - place as f64);
                Rated { player: Player::Version(WeightsVersion(version)), elo: 900.0, low, high: 1300.0, games: 8 }
            };
            let ratings: Vec<Rated> = (1..=version).map(rated).collect();
            past.keep(&manifest(version), &bytes(version), &ratings).unwrap();
        }
        past
    }

    fn keep_upto(folder: &TempDir, spread_max: usize, last: u64) -> PastVersions {
        keep_rated(folder, Limits { spread_max, best_max: 0 }, last, &[])
    }

    #[test]
    fn a_restart_finds_them_with_their_bytes() {
        let folder = TempDir::new().unwrap();
        let kept = versions(&keep_upto(&folder, 3, 9));
        let past = PastVersions::open(folder.path(), Limits { spread_max: 3, best_max: 0 }).unwrap();
        assert_eq!((kept.len(), versions(&past)), (3, kept));
        assert_eq!(past.read(WeightsVersion(9)).unwrap(), (manifest(9), bytes(9)));
    }

    #[test]
    fn no_version_is_kept_with_a_limit_of_zero() {
        let folder = TempDir::new().unwrap();
        assert!(versions(&keep_upto(&folder, 0, 5)).is_empty());
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
    }

    #[test]
    fn the_best_rated_versions_are_kept_beside_those_that_are_spread() {
        let folder = TempDir::new().unwrap();
        let kept = versions(&keep_rated(&folder, Limits { spread_max: 3, best_max: 2 }, 100, &[52, 53, 51]));
        assert_eq!(kept.len(), 5, "{kept:?}");
        assert!([52, 53, 100].iter().all(|version| kept.contains(version)), "{kept:?}");
        let folder = TempDir::new().unwrap();
        assert_eq!(versions(&keep_rated(&folder, Limits { spread_max: 0, best_max: 1 }, 9, &[4])), [4]);
    }

    #[test]
    fn an_unusable_version_is_removed_and_a_protected_one_stays() {
        let folder = TempDir::new().unwrap();
        let mut past = keep_upto(&folder, 3, 3);
        past.remove(WeightsVersion(2)).unwrap();
        assert_eq!(versions(&past), [1, 3]);
        past.protect(WeightsVersion(1));
        (4..100).for_each(|version| past.keep(&manifest(version), &bytes(version), &[]).unwrap());
        assert_eq!((past.versions().len(), past.versions()[0]), (4, WeightsVersion(1)));
    }
}
