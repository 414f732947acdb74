//! Earlier weights versions, kept as opponents, spread evenly over the run on a scale of ratios.
//!
//! They lie in a folder of their own, a manifest and a file of weights each, so that a restart finds them. Bytes are read
//! when a match needs them. Start with [`PastVersions`].

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use weights::{Digest, Manifest, WeightsVersion};

use crate::durable;

/// The versions kept, and where.
#[derive(Debug)]
pub struct PastVersions {
    folder: PathBuf,
    kept_max: usize,
    /// Ascending.
    manifests: Vec<Manifest>,
}

/// Why a version cannot be kept or read.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The file system refuses.
    #[error("cannot use {}", path.display())]
    File {
        /// The file or folder.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// The bytes are not the ones the manifest names.
    #[error("{} is damaged: its digest is {got} instead of {expected}", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What the manifest says.
        expected: Digest,
        /// What is there.
        got: Digest,
    },
}

impl PastVersions {
    /// Finds what an earlier process kept; a manifest that cannot be read is passed over, and its path returned.
    ///
    /// # Errors
    /// If the folder cannot be made or listed.
    pub fn open(folder: &Path, kept_max: usize) -> Result<(Self, Vec<PathBuf>), Error> {
        let refused = |source| Error::File { path: folder.to_owned(), source };
        fs::create_dir_all(folder).map_err(refused)?;
        let mut manifests = Vec::new();
        let mut unreadable = Vec::new();
        for entry in fs::read_dir(folder).map_err(refused)? {
            let path = entry.map_err(refused)?.path();
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

    /// The manifests of the versions kept, ascending.
    #[must_use]
    pub fn manifests(&self) -> &[Manifest] {
        &self.manifests
    }

    /// The bytes of a version, proved by its digest.
    ///
    /// # Errors
    /// See [`Error`].
    pub fn bytes(&self, manifest: &Manifest) -> Result<Vec<u8>, Error> {
        let path = Self::path(&self.folder, manifest.version, "safetensors");
        let bytes = fs::read(&path).map_err(|source| Error::File { path: path.clone(), source })?;
        let got = Digest::of(&bytes);
        if got != manifest.digest {
            return Err(Error::Damaged { path, expected: manifest.digest, got });
        }
        Ok(bytes)
    }

    /// Keeps a version and, if there are too many now, gives up the one whose absence leaves the smallest gap.
    ///
    /// # Errors
    /// If a file cannot be written or removed.
    pub fn keep(&mut self, manifest: &Manifest, bytes: &[u8]) -> Result<(), Error> {
        let known = self.manifests.iter().any(|kept| kept.version == manifest.version);
        if known || self.kept_max == 0 {
            return Ok(());
        }
        let write = |extension, contents: &[u8]| {
            let path = Self::path(&self.folder, manifest.version, extension);
            durable::replace(&path, contents).map_err(|source| Error::File { path, source })
        };
        write("safetensors", bytes)?;
        // The manifest comes last: a version is there once its manifest is.
        write("json", &serde_json::to_vec_pretty(manifest).expect("a manifest has a form in JSON"))?;
        let place = self.manifests.partition_point(|kept| kept.version < manifest.version);
        self.manifests.insert(place, manifest.clone());
        while self.manifests.len() > self.kept_max {
            let index = most_dispensable(&self.manifests);
            self.forget(index)?;
        }
        Ok(())
    }

    /// Gives up a version, because it turned out to be unusable.
    ///
    /// # Errors
    /// If a file cannot be removed.
    pub fn drop_version(&mut self, version: WeightsVersion) -> Result<(), Error> {
        match self.manifests.iter().position(|kept| kept.version == version) {
            Some(index) => self.forget(index),
            None => Ok(()),
        }
    }

    fn forget(&mut self, index: usize) -> Result<(), Error> {
        let version = self.manifests.remove(index).version;
        for extension in ["json", "safetensors"] {
            let path = Self::path(&self.folder, version, extension);
            match fs::remove_file(&path) {
                Err(source) if source.kind() != io::ErrorKind::NotFound => return Err(Error::File { path, source }),
                _ => {}
            }
        }
        Ok(())
    }

    fn path(folder: &Path, version: WeightsVersion, extension: &str) -> PathBuf {
        folder.join(format!("{version}.{extension}"))
    }
}

/// The version between the two neighbours that are closest in ratio; never the newest.
fn most_dispensable(manifests: &[Manifest]) -> usize {
    // Version 0 is no network; one more keeps the logarithm finite all the same.
    let place = |index: usize| (manifests[index].version.0 as f64 + 1.0).ln();
    let gap = |index: usize| place(index + 1) - if index == 0 { 0.0 } else { place(index - 1) };
    let candidates = 0..manifests.len().saturating_sub(1);
    candidates.min_by(|&a, &b| gap(a).total_cmp(&gap(b))).unwrap_or(0)
}

#[cfg(test)]
mod tests;
