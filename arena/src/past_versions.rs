//! Storage of earlier weights versions as opponents, spread evenly over the run on a logarithmic scale.
//!
//! Each version has a manifest and a file of weights in a dedicated folder, which survive a restart. The weights are
//! read when a match needs them. Start with [`PastVersions`].

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use service::directory::{if_exists, replace};
use weights::{Digest, Manifest, WeightsVersion};

/// The kept versions and their folder.
#[derive(Debug)]
pub(crate) struct PastVersions {
    folder: PathBuf,
    kept_max: usize,
    /// The manifests by ascending version.
    manifests: Vec<Manifest>,
}

impl PastVersions {
    /// Finds the versions that an earlier process kept. Skips manifests that cannot be read, and returns their paths.
    ///
    /// # Errors
    /// If the folder cannot be created or listed.
    pub(crate) fn open(folder: &Path, kept_max: usize) -> anyhow::Result<(Self, Vec<PathBuf>)> {
        let refused = || format!("cannot use {}", folder.display());
        fs::create_dir_all(folder).with_context(refused)?;
        let mut manifests = Vec::new();
        let mut unreadable = Vec::new();
        for entry in fs::read_dir(folder).with_context(refused)? {
            let path = entry.with_context(refused)?.path();
            if path.extension().is_none_or(|extension| extension != "json") {
                continue;
            }
            let manifest = fs::read(&path).ok().and_then(|text| serde_json::from_slice::<Manifest>(&text).ok());
            match manifest {
                Some(manifest) if path == Self::path(folder, manifest.version, "json") => manifests.push(manifest),
                _ => unreadable.push(path),
            }
        }
        manifests.sort_by_key(|manifest| manifest.version);
        Ok((Self { folder: folder.to_owned(), kept_max, manifests }, unreadable))
    }

    /// Returns the manifests of the kept versions, ascending.
    pub(crate) fn manifests(&self) -> &[Manifest] {
        &self.manifests
    }

    /// Reads the bytes of a version and checks their digest.
    ///
    /// # Errors
    /// If the file cannot be read, or is damaged.
    pub(crate) fn bytes(&self, manifest: &Manifest) -> anyhow::Result<Vec<u8>> {
        let path = Self::path(&self.folder, manifest.version, "safetensors");
        let (file, expected) = (path.display(), manifest.digest);
        let bytes = fs::read(&path).with_context(|| format!("cannot use {file}"))?;
        let got = Digest::of(&bytes);
        anyhow::ensure!(got == expected, "{file} is damaged: its digest is {got} instead of {expected}");
        Ok(bytes)
    }

    /// Keeps a version; if there are too many, removes the one whose removal leaves the smallest gap.
    ///
    /// # Errors
    /// If a file cannot be written or removed.
    pub(crate) fn keep(&mut self, manifest: &Manifest, bytes: &[u8]) -> anyhow::Result<()> {
        let known = self.manifests.iter().any(|kept| kept.version == manifest.version);
        if known || self.kept_max == 0 {
            return Ok(());
        }
        let write =
            |extension, contents: &[u8]| replace(&Self::path(&self.folder, manifest.version, extension), contents);
        write("safetensors", bytes)?;
        // The manifest is written last: a version exists once its manifest does.
        write("json", &serde_json::to_vec_pretty(manifest).expect("a manifest has a form in JSON"))?;
        let place = self.manifests.partition_point(|kept| kept.version < manifest.version);
        self.manifests.insert(place, manifest.clone());
        while self.manifests.len() > self.kept_max {
            let index = most_dispensable(&self.manifests);
            self.remove_at(index)?;
        }
        Ok(())
    }

    /// Removes an unusable version.
    ///
    /// # Errors
    /// If a file cannot be removed.
    pub(crate) fn drop_version(&mut self, version: WeightsVersion) -> anyhow::Result<()> {
        match self.manifests.iter().position(|kept| kept.version == version) {
            Some(index) => self.remove_at(index),
            None => Ok(()),
        }
    }

    fn remove_at(&mut self, index: usize) -> anyhow::Result<()> {
        let version = self.manifests.remove(index).version;
        for extension in ["json", "safetensors"] {
            let path = Self::path(&self.folder, version, extension);
            if_exists(fs::remove_file(&path)).with_context(|| format!("cannot use {}", path.display()))?;
        }
        Ok(())
    }

    fn path(folder: &Path, version: WeightsVersion, extension: &str) -> PathBuf {
        folder.join(format!("{version}.{extension}"))
    }
}

/// Returns the version between the two neighbours that are closest in ratio; never the newest.
fn most_dispensable(manifests: &[Manifest]) -> usize {
    // Versions start at 1; adding one keeps the logarithm finite in any case.
    let place = |index: usize| (manifests[index].version.0 as f64 + 1.0).ln();
    let gap = |index: usize| place(index + 1) - if index == 0 { 0.0 } else { place(index - 1) };
    let candidates = 0..manifests.len().saturating_sub(1);
    candidates.min_by(|&a, &b| gap(a).total_cmp(&gap(b))).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    //! Tests the selection and storage of versions.

    use std::fs;

    use tempfile::TempDir;
    use weights::{Architecture, Digest, Manifest, WeightsVersion};

    use super::PastVersions;

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

    fn keep_upto(folder: &TempDir, kept_max: usize, last: u64) -> PastVersions {
        let (mut past, unreadable) = PastVersions::open(folder.path(), kept_max).unwrap();
        assert!(unreadable.is_empty());
        for version in 1..=last {
            past.keep(&manifest(version), &bytes(version)).unwrap();
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
        let (past, _) = PastVersions::open(folder.path(), 3).unwrap();
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
        let (past, unreadable) = PastVersions::open(folder.path(), 3).unwrap();
        assert_eq!((versions(&past), unreadable), (vec![1], vec![folder.path().join("v2.json")]));
    }

    #[test]
    fn no_version_is_kept_with_a_limit_of_zero() {
        let folder = TempDir::new().unwrap();
        assert!(versions(&keep_upto(&folder, 0, 5)).is_empty());
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
    }

    #[test]
    fn an_unusable_version_is_removed() {
        let folder = TempDir::new().unwrap();
        let mut past = keep_upto(&folder, 3, 3);
        past.drop_version(WeightsVersion(2)).unwrap();
        assert_eq!(versions(&past), [1, 3]);
    }
}
