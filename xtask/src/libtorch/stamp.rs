//! Lists the fetched files, to detect missing or damaged files.

use std::fs::{self, File};
use std::io::Read;
use std::path::Path;
use std::time::UNIX_EPOCH;

use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};

use super::{Check, Platform, VERSION};
use crate::files;

const NAME: &str = "stamp.json";

/// Contents of `.libtorch/stamp.json`.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Stamp {
    version: String,
    platform: String,
    /// Libraries of both halves; after an interrupted download, the first few of the CUDA half.
    libraries: Vec<Library>,
    headers: Headers,
    /// Libraries of the CUDA half in the stamp of an earlier revision.
    #[serde(default, skip_serializing)]
    cuda: Vec<Library>,
}

#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Library {
    name: String,
    size_bytes: u64,
    modified_ns: u64,
    crc32c: u32,
}

/// The headers, thousands of small files, represented by count and total size.
#[derive(Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Headers {
    files: u64,
    size_bytes: u64,
}

impl Stamp {
    /// Creates the stamp of an installation without files.
    pub(super) fn new(platform: &Platform) -> Self {
        let (version, platform) = (VERSION.to_owned(), platform.name.to_owned());
        Self { version, platform, libraries: Vec::new(), headers: Headers::default(), cuda: Vec::new() }
    }

    /// Reads the stamp of an installation of this version.
    ///
    /// # Errors
    /// The human-readable reason why libtorch must be fetched.
    pub(super) fn read(folder: &Path, platform: &Platform) -> Result<Self> {
        if !folder.exists() {
            bail!("not installed");
        }
        let Ok(text) = fs::read_to_string(folder.join(NAME)) else { bail!("{} has no {NAME}", folder.display()) };
        let Ok(mut stamp) = serde_json::from_str::<Self>(&text) else { bail!("{NAME} cannot be read") };
        stamp.libraries.append(&mut stamp.cuda);
        if (stamp.version.as_str(), stamp.platform.as_str()) != (VERSION, platform.name) {
            bail!("{} holds version {} for {}", folder.display(), stamp.version, stamp.platform);
        }
        Ok(stamp)
    }

    /// Adds the library with the name `lib/…` in `folder`.
    pub(super) fn add_library(&mut self, folder: &Path, name: &str) -> Result<()> {
        self.libraries.retain(|known| known.name != name);
        let path = folder.join(name);
        let (size_bytes, modified_ns, crc32c) = (files::size(&path)?, modified_ns(&path)?, checksum(&path)?);
        self.libraries.push(Library { name: name.to_owned(), size_bytes, modified_ns, crc32c });
        Ok(())
    }

    /// Adds the headers in `folder`.
    pub(super) fn add_headers(&mut self, folder: &Path) -> Result<()> {
        self.headers = Headers::below(&folder.join("include"))?;
        Ok(())
    }

    /// Compares the files in `folder` with the stamp. Returns the names of missing and damaged libraries, or `include`,
    /// each with a human-readable reason.
    pub(super) fn defects(folder: &Path, platform: &'static Platform, check: Check) -> Result<Vec<(String, String)>> {
        let names = platform.libraries.iter().copied().chain(platform.cuda_libraries());
        let mut stamp = match Self::read(folder, platform) {
            Ok(stamp) => stamp,
            Err(reason) => return Ok(names.map(|name| (name.to_owned(), reason.to_string())).collect()),
        };
        let is_unknown = |name: &&str| stamp.libraries.iter().all(|known| known.short_name() != *name);
        let missing = names.filter(is_unknown).map(|name| (name.to_owned(), format!("`lib/{name}` is missing")));
        let mut found: Vec<_> = missing.collect();
        let mut dates_changed = false;
        for library in &mut stamp.libraries {
            match library.check(folder, check) {
                Ok(changed) => dates_changed |= changed,
                Err(reason) => found.push((library.short_name().to_owned(), reason.to_string())),
            }
        }
        if Headers::below(&folder.join("include")).ok().as_ref() != Some(&stamp.headers) {
            found.push(("include".to_owned(), "headers are missing or damaged".to_owned()));
        }
        if dates_changed {
            stamp.save(folder)?;
        }
        Ok(found)
    }

    /// Writes the stamp of the installation in `folder`.
    pub(super) fn save(&self, folder: &Path) -> Result<()> {
        let text = serde_json::to_string_pretty(self).context("serialise the stamp")?;
        let fresh = folder.join("stamp.json.new");
        files::write(&fresh, text + "\n")?;
        files::rename(&fresh, &folder.join(NAME))
    }
}

impl Library {
    /// Returns the name without the directory.
    fn short_name(&self) -> &str {
        self.name.trim_start_matches("lib/")
    }

    /// Checks that the file is intact; returns true if only the date has changed, as after a copy.
    fn check(&mut self, folder: &Path, check: Check) -> Result<bool> {
        let path = folder.join(&self.name);
        let Ok(found) = fs::metadata(&path) else { bail!("`{}` is missing", self.name) };
        if found.len() != self.size_bytes {
            bail!("`{}` has {} bytes instead of {}", self.name, found.len(), self.size_bytes);
        }
        let modified_ns = modified_ns(&path)?;
        let same_date = modified_ns == self.modified_ns;
        if same_date && check == Check::Stamp {
            return Ok(false);
        }
        if checksum(&path)? != self.crc32c {
            bail!("`{}` is damaged", self.name);
        }
        self.modified_ns = modified_ns;
        Ok(!same_date)
    }
}

impl Headers {
    fn below(folder: &Path) -> Result<Self> {
        let sizes = files::below(folder)?.iter().map(|header| files::size(header)).collect::<Result<Vec<_>>>()?;
        Ok(Self { files: sizes.len() as u64, size_bytes: sizes.iter().sum() })
    }
}

fn modified_ns(path: &Path) -> Result<u64> {
    let modified = fs::metadata(path).and_then(|found| found.modified());
    let modified = modified.with_context(|| format!("read the metadata of {}", path.display()))?;
    // A date before 1970 becomes 0, because the value serves only to detect a change.
    let since_epoch = modified.duration_since(UNIX_EPOCH).unwrap_or_default();
    Ok(u64::try_from(since_epoch.as_nanos()).unwrap_or(u64::MAX))
}

fn checksum(path: &Path) -> Result<u32> {
    let mut file = File::open(path).with_context(|| format!("open {}", path.display()))?;
    let mut block = vec![0; 1 << 20];
    let mut sum = 0;
    loop {
        let read = file.read(&mut block).with_context(|| format!("read {}", path.display()))?;
        if read == 0 {
            return Ok(sum);
        }
        sum = crc32c::crc32c_append(sum, &block[..read]);
    }
}
