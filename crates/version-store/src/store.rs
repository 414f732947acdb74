//! A directory of weights versions. A version number never names two different sets of bytes, even after a crash.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::Read as _;
use std::path::{Path, PathBuf};

use anyhow::{Context, ensure};
use service::directory::{if_exists, replace, sync, write_synced};
use weights::{Digest, Manifest, WeightsVersion};

use crate::spread::most_dispensable;

/// Name of the file with the highest version number that this learner or the group may have assigned.
const NOTED: &str = "noted";

/// Extension of the empty file that protects a version from removal.
const PINNED: &str = "pinned";

/// Maximum size of a manifest in bytes: a hundred times the size of any existing manifest.
pub(crate) const MANIFEST_BYTES_MAX: u64 = 1 << 17;

/// A directory of weights versions, each with two files: the weights `v000012.safetensors` and the manifest
/// `v000012.json`. Retention rules never remove a version with an additional file `v000012.pinned`.
#[derive(Debug, Clone)]
pub struct VersionStore {
    directory: PathBuf,
}

/// The rule for removing older versions after a write.
#[derive(Debug, Clone, Copy)]
pub enum Retention<'a> {
    /// All versions are kept.
    All,
    /// This number of latest versions is kept, at least one.
    Latest(usize),
    /// At most `count` versions are kept, spread over the run on a logarithmic scale, in addition to the versions in
    /// `kept`.
    Spread {
        /// Maximum number of versions outside `kept`.
        count: usize,
        /// Versions that must not be removed.
        kept: &'a [WeightsVersion],
    },
}

impl Retention<'_> {
    /// Returns the index of the version to remove first; `None` if there is no excess. `versions` are in ascending
    /// order.
    fn excess(&self, versions: &[WeightsVersion]) -> Option<usize> {
        match self {
            Self::All => None,
            Self::Latest(count) => (versions.len() > (*count).max(1)).then_some(0),
            Self::Spread { count, kept } => {
                let places: Vec<u64> = versions.iter().map(|version| version.0).collect();
                let others: Vec<usize> =
                    (0..versions.len()).filter(|&index| !kept.contains(&versions[index])).collect();
                if others.len() > *count { most_dispensable(&places, others.into_iter()) } else { None }
            }
        }
    }
}

impl VersionStore {
    /// Creates a handle to the versions in `directory`, which need not exist yet.
    #[must_use]
    pub fn new(directory: PathBuf) -> Self {
        Self { directory }
    }

    /// Returns the store of the versions published by the learner, for the run directory `run`.
    #[must_use]
    pub fn of_learner(run: &Path) -> Self {
        Self::new(run.join("weights"))
    }

    /// Returns the store of the versions that the arena keeps as opponents, for the run directory `run`.
    #[must_use]
    pub fn of_arena(run: &Path) -> Self {
        Self::new(run.join("arena"))
    }

    /// Returns all versions of the run directory `run`, each with a store that has it. The learner's store, which keeps
    /// the latest versions, comes first.
    ///
    /// # Errors
    /// A directory cannot be read.
    pub fn kept(run: &Path) -> anyhow::Result<BTreeMap<WeightsVersion, Self>> {
        let mut kept = BTreeMap::new();
        for store in [Self::of_arena(run), Self::of_learner(run)] {
            kept.extend(store.versions()?.into_iter().map(|version| (version, store.clone())));
        }
        Ok(kept)
    }

    /// Returns the directory of the versions.
    #[must_use]
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// Writes a version, then removes older versions according to `retention`. The manifest is written last: a version
    /// exists only with a manifest.
    ///
    /// # Errors
    /// The version cannot be written; the error names the path. If an old version cannot be removed, the failure is
    /// logged, and the next write tries again.
    pub fn write(&self, manifest: &Manifest, bytes: &[u8], retention: Retention<'_>) -> anyhow::Result<()> {
        let write = || -> anyhow::Result<()> {
            fs::create_dir_all(&self.directory)?;
            let text = serde_json::to_string_pretty(manifest)?;
            write_synced(&self.path(manifest.version, "safetensors"), bytes)?;
            Ok(replace(&self.manifest_path(manifest.version), text.as_bytes())?)
        };
        write().with_context(|| format!("store weights {} in {}", manifest.version, self.directory.display()))?;
        if let Err(error) = self.remove_excess(retention) {
            tracing::warn!("cannot remove old versions; the next write tries again: {error:#}");
        }
        Ok(())
    }

    /// Removes the files of a version, even if some files are missing.
    ///
    /// # Errors
    /// A file cannot be removed.
    pub fn remove(&self, version: WeightsVersion) -> anyhow::Result<()> {
        for path in ["json", "safetensors"].map(|extension| self.path(version, extension)) {
            if_exists(fs::remove_file(&path)).with_context(|| format!("remove {}", path.display()))?;
        }
        Ok(())
    }

    /// Returns the latest version whose bytes match the digest in the manifest; `None` if there is none.
    ///
    /// # Errors
    /// The directory cannot be read.
    pub fn newest(&self) -> anyhow::Result<Option<(Manifest, Vec<u8>)>> {
        for version in self.versions()?.into_iter().rev() {
            match self.read(version) {
                Ok(found) => return Ok(Some(found)),
                Err(error) => tracing::error!("cannot use weights {version}; trying the previous version: {error:#}"),
            }
        }
        Ok(None)
    }

    /// Returns the next version number, which is greater than all numbers assigned before.
    ///
    /// # Errors
    /// The directory cannot be read, or no number is left.
    pub fn next_version(&self) -> anyhow::Result<WeightsVersion> {
        let next = self.newest_number()?.checked_add(1);
        next.map(WeightsVersion).with_context(|| format!("no version number is left in {}", self.directory.display()))
    }

    /// Returns the highest version number that may have been assigned; 0 if there is none.
    ///
    /// # Errors
    /// The directory cannot be read, or the stored number is damaged.
    pub fn newest_number(&self) -> anyhow::Result<u64> {
        let path = self.directory.join(NOTED);
        let noted = if_exists(fs::read_to_string(&path)).with_context(|| format!("read {}", path.display()))?;
        let damaged = || {
            let path = path.display();
            format!("{path} is damaged; write the highest weights version of all learners to the file")
        };
        let noted = noted.map_or(Ok(0), |text| text.trim().parse()).with_context(damaged)?;
        Ok(self.versions()?.last().map_or(0, |version| version.0).max(noted))
    }

    /// Stores a version number before it is assigned, so that the number is not assigned again after a crash.
    ///
    /// # Errors
    /// The number cannot be written.
    pub fn note(&self, version: WeightsVersion) -> anyhow::Result<()> {
        let failed = || format!("store the number {version} in {}", self.directory.display());
        fs::create_dir_all(&self.directory).with_context(failed)?;
        replace(&self.directory.join(NOTED), version.0.to_string().as_bytes()).with_context(failed)
    }

    /// Returns an existing version, after verifying the bytes against the digest in the manifest.
    ///
    /// # Errors
    /// A file cannot be read, or the bytes do not match the manifest.
    pub fn read(&self, version: WeightsVersion) -> anyhow::Result<(Manifest, Vec<u8>)> {
        let path = self.manifest_path(version);
        let manifest = read_manifest(&path)?;
        let bytes = read_weights(&manifest, &path.with_extension("safetensors"), u64::MAX)?;
        Ok((manifest, bytes))
    }

    /// Returns the manifest of an existing version, without reading the weights.
    ///
    /// # Errors
    /// The manifest cannot be read or parsed.
    pub fn manifest(&self, version: WeightsVersion) -> anyhow::Result<Manifest> {
        read_manifest(&self.manifest_path(version))
    }

    /// Returns the path of a version's manifest, which need not exist.
    #[must_use]
    pub fn manifest_path(&self, version: WeightsVersion) -> PathBuf {
        self.path(version, "json")
    }

    /// Returns all versions with a manifest, in ascending order.
    ///
    /// # Errors
    /// The directory cannot be read.
    pub fn versions(&self) -> anyhow::Result<Vec<WeightsVersion>> {
        let failed = || format!("list {}", self.directory.display());
        let entries = if_exists(fs::read_dir(&self.directory)).with_context(failed)?;
        let mut versions = Vec::new();
        for entry in entries.into_iter().flatten() {
            let name = entry.with_context(failed)?.file_name();
            let number = name.to_str().and_then(|name| name.strip_prefix('v')?.strip_suffix(".json")?.parse().ok());
            versions.extend(number.map(WeightsVersion).filter(|&version| *name == *file_name(version, "json")));
        }
        versions.sort();
        Ok(versions)
    }

    /// Protects all trained versions from removal, for a newly initialised network that is about to publish versions.
    /// Returns the latest protected version; `None` if there is none.
    ///
    /// # Errors
    /// The directory cannot be read or changed.
    pub fn pin_trained(&self) -> anyhow::Result<Option<WeightsVersion>> {
        let mut newest = None;
        for version in self.versions()? {
            // A version with a damaged manifest may also be trained, so it is protected as well.
            if self.manifest(version).is_ok_and(|manifest| manifest.training_step == 0) {
                continue;
            }
            write_synced(&self.path(version, PINNED), b"")?;
            newest = Some(version);
        }
        if newest.is_some() {
            sync(&self.directory)?;
        }
        Ok(newest)
    }

    fn remove_excess(&self, retention: Retention<'_>) -> anyhow::Result<()> {
        let mut versions = self.versions()?;
        versions.retain(|&version| !self.path(version, PINNED).exists());
        while let Some(index) = retention.excess(&versions) {
            self.remove(versions.remove(index))?;
        }
        Ok(())
    }

    fn path(&self, version: WeightsVersion, extension: &str) -> PathBuf {
        self.directory.join(file_name(version, extension))
    }
}

fn file_name(version: WeightsVersion, extension: &str) -> String {
    format!("v{:06}.{extension}", version.0)
}

/// Reads the manifest of an exported version.
pub(crate) fn read_manifest(path: &Path) -> anyhow::Result<Manifest> {
    let text = read_at_most(path, MANIFEST_BYTES_MAX)?;
    serde_json::from_slice(&text).with_context(|| format!("parse the manifest {}", path.display()))
}

/// Reads the weights that a manifest describes: at most `bytes_max` bytes, and at most the size in the manifest.
pub(crate) fn read_weights(manifest: &Manifest, weights: &Path, bytes_max: u64) -> anyhow::Result<Vec<u8>> {
    let bytes = read_at_most(weights, bytes_max.min(manifest.size_bytes))?;
    let is_written = manifest.digest == Digest::of(&bytes);
    ensure!(is_written, "{} does not match the digest in the manifest", weights.display());
    Ok(bytes)
}

/// Reads a file of at most `bytes_max` bytes.
pub(crate) fn read_at_most(path: &Path, bytes_max: u64) -> anyhow::Result<Vec<u8>> {
    let metadata = fs::metadata(path).with_context(|| cannot_read(path))?;
    // Opening a pipe would wait for a writer, and reading a device may never end.
    ensure!(metadata.is_file(), "{} is not a file", path.display());
    let (size, mut bytes) = (metadata.len(), Vec::new());
    ensure!(size <= bytes_max, "{} has {size} bytes, the limit is {bytes_max}", path.display());
    // The file may grow during the read.
    let read = File::open(path).and_then(|file| file.take(size).read_to_end(&mut bytes));
    read.with_context(|| cannot_read(path))?;
    Ok(bytes)
}

fn cannot_read(path: &Path) -> String {
    format!("read {}", path.display())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn manifest(version: u64, bytes: &[u8]) -> Manifest {
        Manifest::of(bytes, WeightsVersion(version), version * 10, crate::architecture())
    }

    const LATEST: Retention<'_> = Retention::Latest(2);

    fn published(versions: &[u64]) -> (tempfile::TempDir, VersionStore) {
        retained(LATEST, versions)
    }

    fn retained(retention: Retention<'_>, versions: &[u64]) -> (tempfile::TempDir, VersionStore) {
        let directory = tempfile::tempdir().unwrap();
        let store = VersionStore::of_learner(directory.path());
        for &version in versions {
            let bytes = version.to_le_bytes();
            store.write(&manifest(version, &bytes), &bytes, retention).unwrap();
        }
        (directory, store)
    }

    fn numbers(store: &VersionStore) -> Vec<u64> {
        store.versions().unwrap().into_iter().map(|version| version.0).collect()
    }

    #[test]
    fn the_first_version_of_a_run_is_one() {
        assert_eq!(published(&[]).1.next_version().unwrap(), WeightsVersion(1));
    }

    #[test]
    fn the_newest_version_comes_back_and_the_next_number_is_new() {
        let (_directory, published) = published(&[1, 2, 11]);
        let (newest, bytes) = published.newest().unwrap().unwrap();
        assert_eq!((newest.version, bytes), (WeightsVersion(11), 11u64.to_le_bytes().to_vec()));
        assert_eq!(published.next_version().unwrap(), WeightsVersion(12));
        assert_eq!(published.versions().unwrap(), [WeightsVersion(2), WeightsVersion(11)]);
    }

    #[test]
    fn trained_versions_stay_when_a_network_begins_anew_and_its_versions_have_higher_numbers() {
        let (_directory, published) = published(&[]);
        let write = |version, training_step| {
            published.write(&Manifest { training_step, ..manifest(version, b"any") }, b"any", LATEST).unwrap();
        };
        write(1, 0);
        assert_eq!(published.pin_trained().unwrap(), None, "an untrained version is not kept");
        [(2, 10), (3, 20)].iter().for_each(|&(version, step)| write(version, step));
        assert_eq!(published.pin_trained().unwrap(), Some(WeightsVersion(3)));
        assert_eq!(published.next_version().unwrap(), WeightsVersion(4));
        (4..9).for_each(|version| write(version, version - 4));
        assert_eq!(published.versions().unwrap(), [2, 3, 7, 8].map(WeightsVersion));
    }

    #[test]
    fn a_directory_that_cannot_be_listed_gives_no_number_a_second_time() {
        let (directory, published) = published(&[]);
        fs::write(directory.path().join("weights"), "a file in the way").unwrap();
        assert!(published.next_version().is_err());
    }

    #[test]
    fn a_damaged_version_is_passed_over_and_its_number_is_not_given_again() {
        let (_directory, published) = published(&[1, 2]);
        fs::write(published.path(WeightsVersion(2), "safetensors"), b"other bytes").unwrap();
        assert_eq!(published.newest().unwrap().unwrap().0.version, WeightsVersion(1));
        assert_eq!(published.next_version().unwrap(), WeightsVersion(3));
    }

    #[test]
    fn a_noted_number_is_not_given_again_and_none_wraps() {
        let (directory, published) = published(&[1, 2]);
        published.note(WeightsVersion(7)).unwrap();
        assert_eq!((published.newest_number().unwrap(), published.next_version().unwrap().0), (7, 8));
        assert_eq!(published.versions().unwrap().len(), 2, "a noted number is no version");
        fs::write(directory.path().join("weights").join(NOTED), "x").unwrap();
        assert!(format!("{:#}", published.next_version().unwrap_err()).contains("noted is damaged"));
        published.note(WeightsVersion(u64::MAX)).unwrap();
        assert!(published.next_version().unwrap_err().to_string().contains("no version number is left"));
    }

    #[test]
    fn a_version_is_written_although_an_older_one_cannot_be_removed_or_is_gone_in_part() {
        let (_directory, published) = published(&[1, 2]);
        fs::remove_file(published.path(WeightsVersion(1), "safetensors")).unwrap();
        published.write(&manifest(3, b"3"), b"3", LATEST).unwrap();
        assert_eq!(published.versions().unwrap(), [2, 3].map(WeightsVersion));
        // A directory in place of the weights file cannot be removed like a file.
        fs::remove_file(published.path(WeightsVersion(2), "safetensors")).unwrap();
        fs::create_dir(published.path(WeightsVersion(2), "safetensors")).unwrap();
        published.write(&manifest(4, b"4"), b"4", LATEST).unwrap();
        assert_eq!(published.newest().unwrap().unwrap().0.version, WeightsVersion(4));
    }

    #[test]
    fn spread_versions_are_the_latest_and_others_each_at_least_twice_the_one_before() {
        let all: Vec<u64> = (1..=100).collect();
        let (directory, store) = retained(Retention::Spread { count: 4, kept: &[] }, &all);
        let left = numbers(&store);
        assert_eq!((left.len(), left[3]), (4, 100), "{left:?}");
        assert!(left.windows(2).all(|pair| pair[1] >= 2 * pair[0]), "{left:?}");
        let files = fs::read_dir(directory.path().join("weights")).unwrap().count();
        assert_eq!(files, 8, "the others are gone from the disk");
    }

    #[test]
    fn kept_versions_stay_beside_those_that_are_spread() {
        let (all, kept) = ((1..=100).collect::<Vec<u64>>(), [52, 53].map(WeightsVersion));
        let left = numbers(&retained(Retention::Spread { count: 3, kept: &kept }, &all).1);
        assert!(left.len() == 5 && [52, 53, 100].iter().all(|version| left.contains(version)), "{left:?}");
        assert_eq!(numbers(&retained(Retention::Spread { count: 0, kept: &kept }, &all).1), [52, 53]);
    }

    #[test]
    fn a_flipped_byte_is_found_by_the_digest_and_a_file_of_another_name_is_no_version() {
        let (directory, store) = published(&[1]);
        let folder = directory.path().join("weights");
        fs::write(folder.join("v000001.safetensors"), "other").unwrap();
        let error = store.read(WeightsVersion(1)).unwrap_err().to_string();
        assert!(error.contains("v000001.safetensors does not match"), "{error}");
        fs::write(folder.join("v000002.json"), "{").unwrap();
        let error = store.read(WeightsVersion(2)).unwrap_err().to_string();
        assert!(error.contains("parse the manifest") && error.contains("v000002.json"), "{error}");
        fs::remove_file(folder.join("v000002.json")).unwrap();
        let socket = std::os::unix::net::UnixListener::bind(folder.join("v000002.json")).unwrap();
        let error = store.read(WeightsVersion(2)).unwrap_err().to_string();
        assert!(error.ends_with("v000002.json is not a file"), "{error}");
        drop(socket);
        fs::remove_file(folder.join("v000002.json")).unwrap();
        fs::write(folder.join("v7.json"), "{}").unwrap();
        assert_eq!(numbers(&store), [1]);
        store.remove(WeightsVersion(1)).unwrap();
        store.remove(WeightsVersion(1)).unwrap();
        assert!(numbers(&store).is_empty());
    }

    #[test]
    fn reading_a_directory_that_is_missing_finds_nothing_and_creates_nothing() {
        let directory = tempfile::tempdir().unwrap();
        let store = VersionStore::of_arena(directory.path());
        assert!(store.versions().unwrap().is_empty() && !store.directory().exists());
    }
}
