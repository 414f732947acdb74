use std::fs;
use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::Error;

/// Name of the Python package, which is run as `python -m`.
pub(crate) const NAME: &str = "zerofleet_gym";

/// The sources of the package, so that an installed binary needs no further file.
const FILES: [(&str, &str); 9] = [
    ("__init__.py", include_str!("../python/zerofleet_gym/__init__.py")),
    ("__main__.py", include_str!("../python/zerofleet_gym/__main__.py")),
    ("advice.py", include_str!("../python/zerofleet_gym/advice.py")),
    ("numbers.py", include_str!("../python/zerofleet_gym/numbers.py")),
    ("pictures.py", include_str!("../python/zerofleet_gym/pictures.py")),
    ("protocol.py", include_str!("../python/zerofleet_gym/protocol.py")),
    ("spaces.py", include_str!("../python/zerofleet_gym/spaces.py")),
    ("unsupported.py", include_str!("../python/zerofleet_gym/unsupported.py")),
    ("worker.py", include_str!("../python/zerofleet_gym/worker.py")),
];

/// Writes the package into `folder`, unless already present.
///
/// # Errors
/// [`Error::Package`] if a file cannot be written.
pub(crate) fn write(folder: &Path) -> Result<(), Error> {
    let package = folder.join(NAME);
    let write_all = || {
        fs::create_dir_all(&package)?;
        FILES.iter().try_for_each(|(name, text)| write_file(&package, name, text))
    };
    write_all().map_err(|source| Error::Package { folder: folder.to_owned(), source })
}

/// Writes a file so that a concurrently starting process reads either the old or the new file.
fn write_file(package: &Path, name: &str, text: &str) -> io::Result<()> {
    static WRITTEN: AtomicU64 = AtomicU64::new(0);
    let path = package.join(name);
    if fs::read(&path).is_ok_and(|written| written == text.as_bytes()) {
        return Ok(());
    }
    let number = WRITTEN.fetch_add(1, Ordering::Relaxed);
    let draft = package.join(format!(".{name}.{}.{number}", std::process::id()));
    fs::write(&draft, text)?;
    fs::rename(&draft, path)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(folder: &Path) -> Vec<String> {
        let names = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
        let mut names: Vec<String> = names.filter(|name| name != "__pycache__").collect();
        names.sort();
        names
    }

    #[test]
    fn the_package_has_all_its_files_and_a_damaged_one_is_replaced() {
        let folder = tempfile::tempdir().unwrap();
        write(folder.path()).unwrap();
        let (source, written) = (Path::new(env!("CARGO_MANIFEST_DIR")).join("python/zerofleet_gym"), folder.path());
        assert_eq!(names(&source), names(&written.join(NAME)));
        let worker = written.join(NAME).join("worker.py");
        fs::write(&worker, "import nothing").unwrap();
        write(written).unwrap();
        assert_eq!(fs::read(&worker).unwrap(), fs::read(source.join("worker.py")).unwrap());
    }
}
