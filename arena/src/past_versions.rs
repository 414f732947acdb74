//! Stores earlier weights versions as opponents: some spread evenly over the run on a logarithmic scale, and the best
//! rated.
//!
//! Each version has a manifest and a weights file in a dedicated directory, which survives a restart. A match reads
//! the weights when it needs them. Start with [`PastVersions`].

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use service::directory::{if_exists, replace};
use weights::{Digest, Manifest, WeightsVersion};

use crate::ledger::{Player, Rated};

/// The kept versions, in a directory.
#[derive(Debug)]
pub struct PastVersions {
    folder: PathBuf,
    limits: Limits,
    /// Manifests by ascending version.
    manifests: Vec<Manifest>,
    /// A version that is never removed, whatever its rating.
    protected: Option<WeightsVersion>,
}

/// Maximum numbers of kept versions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Number of versions spread over the run.
    pub spread_max: usize,
    /// Number of best rated versions kept in addition.
    pub best_max: usize,
}

impl PastVersions {
    /// Finds the versions that an earlier process kept. Skips unreadable manifests, and returns the paths of these.
    ///
    /// # Errors
    /// The directory cannot be created or listed.
    pub(crate) fn open(folder: &Path, limits: Limits) -> anyhow::Result<(Self, Vec<PathBuf>)> {
        fs::create_dir_all(folder).with_context(|| cannot_use(folder))?;
        let (manifests, unreadable) = list(folder)?;
        Ok((Self { folder: folder.to_owned(), limits, manifests, protected: None }, unreadable))
    }

    /// Finds the versions that a run's arena has kept in this directory, which need not exist. Changes nothing.
    ///
    /// # Errors
    /// The directory cannot be listed.
    pub fn read(folder: &Path) -> anyhow::Result<Self> {
        let limits = Limits { spread_max: usize::MAX, best_max: 0 };
        Ok(Self { folder: folder.to_owned(), limits, manifests: list(folder)?.0, protected: None })
    }

    /// Returns the manifests of the kept versions, ascending.
    #[must_use]
    pub fn manifests(&self) -> &[Manifest] {
        &self.manifests
    }

    /// Reads the bytes of a version and checks the digest.
    ///
    /// # Errors
    /// The file cannot be read or is damaged.
    pub fn bytes(&self, manifest: &Manifest) -> anyhow::Result<Vec<u8>> {
        let path = self.path(manifest.version, "safetensors");
        let (file, expected) = (path.display(), manifest.digest);
        let bytes = fs::read(&path).with_context(|| cannot_use(&path))?;
        let got = Digest::of(&bytes);
        anyhow::ensure!(got == expected, "{file} is damaged: the digest is {got}, expected {expected}");
        Ok(bytes)
    }

    /// Returns the path of a version's manifest.
    #[must_use]
    pub fn manifest_path(&self, version: WeightsVersion) -> PathBuf {
        self.path(version, "json")
    }

    /// Protects this version alone from removal.
    pub(crate) fn protect(&mut self, version: WeightsVersion) {
        self.protected = Some(version);
    }

    /// Keeps a version. If there are too many apart from the best rated, removes versions one by one such that each
    /// removal leaves the smallest gap.
    ///
    /// # Errors
    /// A file cannot be written or removed.
    pub(crate) fn keep(&mut self, manifest: &Manifest, bytes: &[u8], ratings: &[Rated]) -> anyhow::Result<()> {
        let is_known = self.manifests.iter().any(|kept| kept.version == manifest.version);
        let is_protected = self.protected == Some(manifest.version);
        if is_known || (self.limits == Limits { spread_max: 0, best_max: 0 } && !is_protected) {
            return Ok(());
        }
        let write = |extension, contents: &[u8]| replace(&self.path(manifest.version, extension), contents);
        write("safetensors", bytes)?;
        // The manifest is written last: a version exists once the manifest does.
        write("json", &serde_json::to_vec_pretty(manifest).expect("a manifest has a form in JSON"))?;
        let place = self.manifests.partition_point(|kept| kept.version < manifest.version);
        self.manifests.insert(place, manifest.clone());
        let mut best = best(&self.manifests, ratings, self.limits.best_max);
        best.extend(self.protected);
        while let Some(index) = most_dispensable(&self.manifests, &best, self.limits.spread_max) {
            self.remove_at(index)?;
        }
        Ok(())
    }

    /// Removes an unusable version.
    ///
    /// # Errors
    /// A file cannot be removed.
    pub(crate) fn drop_version(&mut self, version: WeightsVersion) -> anyhow::Result<()> {
        match self.manifests.iter().position(|kept| kept.version == version) {
            Some(index) => self.remove_at(index),
            None => Ok(()),
        }
    }

    fn remove_at(&mut self, index: usize) -> anyhow::Result<()> {
        let version = self.manifests.remove(index).version;
        for extension in ["json", "safetensors"] {
            let path = self.path(version, extension);
            if_exists(fs::remove_file(&path)).with_context(|| cannot_use(&path))?;
        }
        Ok(())
    }

    fn path(&self, version: WeightsVersion, extension: &str) -> PathBuf {
        path(&self.folder, version, extension)
    }
}

/// Returns the `best_max` versions with the highest lower bounds of the rating interval: few games prove little.
#[must_use]
pub fn best(manifests: &[Manifest], ratings: &[Rated], best_max: usize) -> Vec<WeightsVersion> {
    let rated = |manifest: &Manifest| {
        let rated = ratings.iter().find(|rated| rated.player == Player::Version(manifest.version))?;
        Some((rated.low, manifest.version))
    };
    let mut rated: Vec<(f64, WeightsVersion)> = manifests.iter().filter_map(rated).collect();
    rated.sort_by(|(one, _), (other, _)| other.total_cmp(one));
    rated.into_iter().take(best_max).map(|(_, version)| version).collect()
}

/// Returns the manifests in a directory by ascending version, and the paths of unreadable manifests; none without a
/// directory.
fn list(folder: &Path) -> anyhow::Result<(Vec<Manifest>, Vec<PathBuf>)> {
    let refused = || cannot_use(folder);
    let (mut manifests, mut unreadable) = (Vec::new(), Vec::new());
    for entry in if_exists(fs::read_dir(folder)).with_context(refused)?.into_iter().flatten() {
        let file = entry.with_context(refused)?.path();
        if file.extension().is_none_or(|extension| extension != "json") {
            continue;
        }
        let manifest = fs::read(&file).ok().and_then(|text| serde_json::from_slice::<Manifest>(&text).ok());
        match manifest {
            Some(manifest) if file == path(folder, manifest.version, "json") => manifests.push(manifest),
            _ => unreadable.push(file),
        }
    }
    manifests.sort_by_key(|manifest| manifest.version);
    Ok((manifests, unreadable))
}

fn path(folder: &Path, version: WeightsVersion, extension: &str) -> PathBuf {
    folder.join(format!("{version}.{extension}"))
}

fn cannot_use(path: &Path) -> String {
    format!("cannot use {}", path.display())
}

/// If more than `spread_max` versions are not among the best, returns the one to remove with the smallest gap; never
/// the latest, unless none is to be kept.
fn most_dispensable(manifests: &[Manifest], best: &[WeightsVersion], spread_max: usize) -> Option<usize> {
    let places: Vec<u64> = manifests.iter().map(|manifest| manifest.version.0).collect();
    let others: Vec<usize> = (0..manifests.len()).filter(|&index| !best.contains(&manifests[index].version)).collect();
    let dispensable = service::spread::most_dispensable(&places, others.iter().copied());
    dispensable.filter(|_| others.len() > spread_max)
}

#[cfg(test)]
mod tests {
    //! Tests the selection and storage of versions.

    use std::fs;

    use tempfile::TempDir;
    use weights::{Architecture, Digest, Manifest, WeightsVersion};

    use super::{Limits, PastVersions};
    use crate::ledger::{Player, Rated};

    fn bytes(version: u64) -> Vec<u8> {
        format!("weights {version}").into_bytes()
    }

    fn manifest(version: u64) -> Manifest {
        let bytes = bytes(version);
        let architecture = Architecture {
            game: "connect_four".into(),
            planes: 3,
            height: 6,
            width: 7,
            actions: 7,
            channels: 8,
            blocks: 1,
            squeeze_excitation: 0,
            global_pooling: 0,
            design: weights::Design::default(),
            model: weights::Model::Alphazero,
        };
        let (digest, size_bytes) = (Digest::of(&bytes), bytes.len() as u64);
        Manifest { version: WeightsVersion(version), training_step: 10 * version, digest, size_bytes, architecture }
    }

    fn versions(past: &PastVersions) -> Vec<u64> {
        past.manifests().iter().map(|manifest| manifest.version.0).collect()
    }

    fn spread(spread_max: usize) -> Limits {
        Limits { spread_max, best_max: 0 }
    }

    fn keep_upto(folder: &TempDir, spread_max: usize, last: u64) -> PastVersions {
        keep_rated(folder, spread(spread_max), last, &[])
    }

    /// Keeps all versions up to `last`; versions in `best` are rated above all other versions, the first highest.
    fn keep_rated(folder: &TempDir, limits: Limits, last: u64, best: &[u64]) -> PastVersions {
        let (mut past, unreadable) = PastVersions::open(folder.path(), limits).unwrap();
        assert!(unreadable.is_empty());
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

    #[test]
    fn the_versions_kept_are_the_newest_and_others_each_at_least_twice_the_one_before() {
        let folder = TempDir::new().unwrap();
        let kept = versions(&keep_upto(&folder, 4, 100));
        assert_eq!((kept.len(), kept[3]), (4, 100), "{kept:?}");
        assert!(kept.windows(2).all(|pair| pair[1] >= 2 * pair[0]), "{kept:?}");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 8, "the others are gone from the disk");
    }

    #[test]
    fn a_restart_finds_them_with_their_bytes() {
        let folder = TempDir::new().unwrap();
        let kept = versions(&keep_upto(&folder, 3, 9));
        let (past, _) = PastVersions::open(folder.path(), spread(3)).unwrap();
        assert_eq!(versions(&past), kept);
        assert_eq!(past.bytes(&past.manifests()[2]).unwrap(), bytes(9));
    }

    #[test]
    fn a_flipped_byte_is_found_by_the_digest() {
        let folder = TempDir::new().unwrap();
        let past = keep_upto(&folder, 3, 1);
        fs::write(folder.path().join("v1.safetensors"), "weights 2").unwrap();
        let error = past.bytes(&past.manifests()[0]).unwrap_err().to_string();
        assert!(error.contains("v1.safetensors is damaged"), "{error}");
    }

    #[test]
    fn an_unreadable_manifest_is_skipped_and_named() {
        let folder = TempDir::new().unwrap();
        keep_upto(&folder, 3, 2);
        fs::write(folder.path().join("v2.json"), "{").unwrap();
        let (past, unreadable) = PastVersions::open(folder.path(), spread(3)).unwrap();
        assert_eq!((versions(&past), unreadable), (vec![1], vec![folder.path().join("v2.json")]));
    }

    #[test]
    fn no_version_is_kept_with_a_limit_of_zero() {
        let folder = TempDir::new().unwrap();
        assert!(versions(&keep_upto(&folder, 0, 5)).is_empty());
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
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
    fn reading_a_folder_that_is_missing_finds_nothing_and_creates_nothing() {
        let folder = TempDir::new().unwrap();
        let missing = folder.path().join("arena");
        assert!(PastVersions::read(&missing).unwrap().manifests().is_empty() && !missing.exists());
        keep_upto(&folder, 3, 2);
        assert_eq!(versions(&PastVersions::read(folder.path()).unwrap()), [1, 2]);
    }

    #[test]
    fn an_unusable_version_is_removed() {
        let folder = TempDir::new().unwrap();
        let mut past = keep_upto(&folder, 3, 3);
        past.drop_version(WeightsVersion(2)).unwrap();
        assert_eq!(versions(&past), [1, 3]);
    }
}
