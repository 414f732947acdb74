//! The list of fetched files, for detecting missing or damaged files.

use std::fs::{self, File};
use std::io::Read;
use std::path::Path;
use std::time::UNIX_EPOCH;

use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};
use walkdir::WalkDir;

use super::wheels::is_cuda;
use super::{Check, Platform, VERSION};

const NAME: &str = "stamp.json";

/// Contents of `.libtorch/stamp.json`.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Stamp {
    version: String,
    platform: String,
    libraries: Vec<Library>,
    headers: Headers,
    /// Libraries of the CUDA half: all, none, or the first few after an interrupted download.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
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
    /// Writes the stamp of the files in `folder`.
    pub(super) fn write(folder: &Path, platform: &Platform) -> Result<()> {
        let mut names = Vec::new();
        for entry in fs::read_dir(folder.join("lib")).context("list lib")? {
            names.push(entry.context("list lib")?.file_name().to_string_lossy().into_owned());
        }
        names.sort();
        let (cuda, cpu): (Vec<String>, Vec<String>) = names.into_iter().partition(|name| is_cuda(name));
        let stamp = Self {
            version: VERSION.to_owned(),
            platform: platform.name.to_owned(),
            libraries: cpu.iter().map(|name| Library::of(folder, name)).collect::<Result<_>>()?,
            headers: Headers::below(&folder.join("include"))?,
            cuda: cuda.iter().map(|name| Library::of(folder, name)).collect::<Result<_>>()?,
        };
        stamp.save(folder)
    }

    /// Adds libraries of the CUDA half in `folder` to the stamp of `folder`.
    pub(super) fn add(folder: &Path, platform: &Platform, names: &[&str]) -> Result<()> {
        let mut stamp = Self::read(folder, platform)?;
        for name in names {
            let library = Library::of(folder, name)?;
            stamp.cuda.retain(|known| known.name != library.name);
            stamp.cuda.push(library);
        }
        stamp.cuda.sort_by(|a, b| a.name.cmp(&b.name));
        stamp.save(folder)
    }

    fn read(folder: &Path, platform: &Platform) -> Result<Self> {
        if !folder.exists() {
            bail!("not installed");
        }
        let Ok(text) = fs::read_to_string(folder.join(NAME)) else { bail!("{} has no {NAME}", folder.display()) };
        let Ok(stamp) = serde_json::from_str::<Self>(&text) else { bail!("{NAME} cannot be read") };
        if (stamp.version.as_str(), stamp.platform.as_str()) != (VERSION, platform.name) {
            bail!("{} holds version {} for {}", folder.display(), stamp.version, stamp.platform);
        }
        Ok(stamp)
    }

    /// Compares the CPU half in `folder` with the stamp.
    ///
    /// # Errors
    /// The human-readable reason to fetch the half again.
    pub(super) fn check(folder: &Path, platform: &Platform, check: Check) -> Result<()> {
        let mut stamp = Self::read(folder, platform)?;
        for library in platform.libraries {
            if !stamp.libraries.iter().any(|known| known.name.strip_prefix("lib/") == Some(library)) {
                bail!("{NAME} does not name `lib/{library}`");
            }
        }
        let mut dates_changed = false;
        for library in &mut stamp.libraries {
            dates_changed |= library.check(folder, check)?;
        }
        if Headers::below(&folder.join("include")).ok().as_ref() != Some(&stamp.headers) {
            bail!("headers are missing or damaged");
        }
        if dates_changed {
            stamp.save(folder)?;
        }
        Ok(())
    }

    /// Compares the CUDA half in `folder` with the stamp. Returns the libraries to fetch with a human-readable reason:
    /// none if the half is complete, all if it was never fetched.
    pub(super) fn missing_cuda(
        folder: &Path,
        platform: &'static Platform,
        check: Check,
    ) -> Result<Vec<(&'static str, String)>> {
        let never = |name: &'static str| (name, format!("`lib/{name}` is missing"));
        let Ok(mut stamp) = Self::read(folder, platform) else {
            return Ok(platform.cuda_libraries().map(never).collect());
        };
        let mut dates_changed = false;
        let mut missing = Vec::new();
        for name in platform.cuda_libraries() {
            match stamp.cuda.iter_mut().find(|known| known.name.strip_prefix("lib/") == Some(name)) {
                None => missing.push(never(name)),
                Some(library) => match library.check(folder, check) {
                    Ok(changed) => dates_changed |= changed,
                    Err(reason) => missing.push((name, reason.to_string())),
                },
            }
        }
        if dates_changed {
            stamp.save(folder)?;
        }
        Ok(missing)
    }

    fn save(&self, folder: &Path) -> Result<()> {
        let text = serde_json::to_string_pretty(self).context("serialise the stamp")?;
        let fresh = folder.join("stamp.json.new");
        fs::write(&fresh, text + "\n").with_context(|| format!("write {}", fresh.display()))?;
        fs::rename(&fresh, folder.join(NAME)).with_context(|| format!("rename {}", fresh.display()))
    }
}

impl Library {
    /// Reads the file `name` in `lib` of `folder`.
    fn of(folder: &Path, name: &str) -> Result<Self> {
        let path = folder.join("lib").join(name);
        Ok(Self {
            name: format!("lib/{name}"),
            size_bytes: fs::metadata(&path).with_context(|| format!("read the metadata of {}", path.display()))?.len(),
            modified_ns: modified_ns(&path)?,
            crc32c: checksum(&path)?,
        })
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
        let mut sum = Self::default();
        for entry in WalkDir::new(folder) {
            let entry = entry.with_context(|| format!("`{}` cannot be listed", folder.display()))?;
            if !entry.file_type().is_dir() {
                sum.files += 1;
                sum.size_bytes += entry.metadata().context("read the metadata of a header")?.len();
            }
        }
        Ok(sum)
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
