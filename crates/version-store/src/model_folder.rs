//! A model folder: weights outside a run, in the layout of model hubs. Start with [`ModelFolder`].

use std::ffi::OsStr;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail, ensure};
use serde::{Deserialize, Serialize};
use service::directory::replace;
use weights::{Digest, Manifest};

use crate::store::{MANIFEST_BYTES_MAX, read_at_most, read_manifest, read_weights};

/// Value of `library_name` in the configuration of a model.
const LIBRARY: &str = "zerofleet";
/// The forms of a model, for errors.
const FORMS: &str = "a directory with config.json and model.safetensors, one of these two files, or a manifest with \
                     the weights next to it, such as v000012.json and v000012.safetensors";

/// A directory with a model: [`CONFIG`](Self::CONFIG) and [`WEIGHTS`](Self::WEIGHTS), optionally with the run file
/// [`RUN_FILE`](Self::RUN_FILE) of the training, the model card [`CARD`](Self::CARD) and files of other programs.
#[derive(Debug)]
pub struct ModelFolder;

/// A model as read.
#[derive(Debug, Clone, PartialEq)]
pub struct Model {
    /// The manifest of the weights.
    pub manifest: Manifest,
    /// The weights, a safetensors file that matches the digest in the manifest.
    pub bytes: Vec<u8>,
    /// The run file next to the weights; `None` without one.
    pub run_file: Option<PathBuf>,
}

/// The file [`ModelFolder::CONFIG`]. Other keys belong to hubs and other programs.
#[derive(Serialize, Deserialize)]
struct Config {
    library_name: String,
    weights: Manifest,
}

impl ModelFolder {
    /// Name of the file with the manifest: `{"library_name": "zerofleet", "weights": MANIFEST}`.
    pub const CONFIG: &'static str = "config.json";
    /// Name of the file with the weights.
    pub const WEIGHTS: &'static str = "model.safetensors";
    /// Name of the run file of the training.
    pub const RUN_FILE: &'static str = "run.toml";
    /// Name of the model card.
    pub const CARD: &'static str = "README.md";

    /// Writes weights and manifest, like [`write_with`](Self::write_with) without further files.
    ///
    /// # Errors
    /// As for [`write_with`](Self::write_with).
    pub fn write(directory: &Path, manifest: &Manifest, bytes: &[u8]) -> anyhow::Result<()> {
        Self::write_with(directory, manifest, bytes, &[])
    }

    /// Writes weights, further files by name, and the manifest into a new or empty directory, or over the files of an
    /// interrupted write. The manifest is written last: without it, the directory is no model.
    ///
    /// # Errors
    /// The directory has other files, the bytes do not match the manifest, or a file cannot be written.
    pub fn write_with(
        directory: &Path,
        manifest: &Manifest,
        bytes: &[u8],
        files: &[(&str, &[u8])],
    ) -> anyhow::Result<()> {
        ensure!(manifest.digest == Digest::of(bytes), "the weights do not match the digest in the manifest");
        let failed = || format!("create {}", directory.display());
        fs::create_dir_all(directory).with_context(failed)?;
        let is_free = is_free(directory, files).with_context(failed)?;
        ensure!(is_free, "{} is not empty; choose a new directory", directory.display());
        let config = Config { library_name: LIBRARY.to_owned(), weights: manifest.clone() };
        for (name, contents) in [(Self::WEIGHTS, bytes)].iter().chain(files) {
            replace(&directory.join(name), contents)?;
        }
        Ok(replace(&directory.join(Self::CONFIG), &serde_json::to_vec_pretty(&config)?)?)
    }

    /// Reads a model. `path` is a model folder, the manifest or the weights in it, or the manifest or the weights of an
    /// exported version ([`VersionStore`](crate::VersionStore)).
    ///
    /// # Errors
    /// A file is missing, damaged or in another form, or the weights are larger than stated in the manifest; the error
    /// names the file and the expected form.
    pub fn read(path: &Path) -> anyhow::Result<Model> {
        Self::read_at_most(path, u64::MAX)
    }

    /// Reads a model like [`read`](Self::read), with weights of at most `bytes_max` bytes.
    ///
    /// # Errors
    /// As for [`read`](Self::read).
    pub fn read_at_most(path: &Path, bytes_max: u64) -> anyhow::Result<Model> {
        let [config, weights] = files_of(path)?;
        let manifest = manifest_in(&config)?;
        let bytes = read_weights(&manifest, &weights, bytes_max)?;
        let run_file = Some(config.with_file_name(Self::RUN_FILE)).filter(|file| file.is_file());
        Ok(Model { manifest, bytes, run_file })
    }

    /// Reads the manifest of a model, without the weights.
    ///
    /// # Errors
    /// As for [`read`](Self::read).
    pub fn manifest(path: &Path) -> anyhow::Result<Manifest> {
        let [config, _] = files_of(path)?;
        manifest_in(&config)
    }
}

/// Returns whether a directory is empty, or has only files of a write of `files` that was interrupted before the
/// manifest. The weights are the first file, under a temporary name until they are complete.
fn is_free(directory: &Path, files: &[(&str, &[u8])]) -> io::Result<bool> {
    let mut names = Vec::new();
    for entry in fs::read_dir(directory)? {
        names.push(entry?.file_name().to_string_lossy().into_owned());
    }
    let is_of = |name: &str, file: &str| {
        name == file || name.strip_prefix(file).is_some_and(|rest| rest.starts_with('.') && rest.ends_with(".new"))
    };
    let is_known = |name: &String| {
        let is_manifest = name != ModelFolder::CONFIG && is_of(name, ModelFolder::CONFIG);
        is_manifest || is_of(name, ModelFolder::WEIGHTS) || files.iter().any(|(file, _)| is_of(name, file))
    };
    let has_weights = names.iter().any(|name| is_of(name, ModelFolder::WEIGHTS));
    Ok(names.is_empty() || has_weights && names.iter().all(is_known))
}

/// Returns the files with the manifest and with the weights of the model at `path`; both exist.
fn files_of(path: &Path) -> anyhow::Result<[PathBuf; 2]> {
    let files = if path.is_dir() {
        [path.join(ModelFolder::CONFIG), path.join(ModelFolder::WEIGHTS)]
    } else {
        let config = path.with_file_name(ModelFolder::CONFIG);
        match path.extension().and_then(OsStr::to_str) {
            Some("json") if *path == *config => [config, path.with_file_name(ModelFolder::WEIGHTS)],
            Some("json") => [path.to_owned(), path.with_extension("safetensors")],
            Some("safetensors") => {
                // A version next to a model folder has a manifest of its own.
                let manifest = path.with_extension("json");
                let is_of_folder = path.file_name() == Some(OsStr::new(ModelFolder::WEIGHTS)) || !manifest.is_file();
                [if is_of_folder && config.is_file() { config } else { manifest }, path.to_owned()]
            }
            _ => bail!("{} is no model; expected {FORMS}", path.display()),
        }
    };
    for file in &files {
        ensure!(file.is_file(), "{} is missing; a model is {FORMS}", file.display());
    }
    Ok(files)
}

/// Reads the manifest in the configuration of a model, or the manifest of an exported version.
fn manifest_in(file: &Path) -> anyhow::Result<Manifest> {
    if file.file_name() != Some(OsStr::new(ModelFolder::CONFIG)) {
        return read_manifest(file);
    }
    let expected =
        || format!("{}: expected {{\"library_name\": \"{LIBRARY}\", \"weights\": MANIFEST}}", file.display());
    let config: Config = serde_json::from_slice(&read_at_most(file, MANIFEST_BYTES_MAX)?).with_context(expected)?;
    ensure!(config.library_name == LIBRARY, "{}, the library is {}", expected(), config.library_name);
    Ok(config.weights)
}

#[cfg(test)]
mod tests {
    use weights::WeightsVersion;

    use super::*;
    use crate::{Retention, VersionStore};

    const BYTES: &[u8] = b"some weights";

    fn manifest() -> Manifest {
        Manifest::of(BYTES, WeightsVersion(12), 120, crate::architecture())
    }

    fn written() -> (tempfile::TempDir, PathBuf) {
        let directory = tempfile::tempdir().unwrap();
        let folder = directory.path().join("models/any");
        ModelFolder::write(&folder, &manifest(), BYTES).unwrap();
        (directory, folder)
    }

    fn refused(path: &Path) -> String {
        format!("{:#}", ModelFolder::read(path).unwrap_err())
    }

    #[test]
    fn every_form_of_a_model_is_read_with_the_same_content() {
        let (directory, folder) = written();
        let exported = VersionStore::new(directory.path().join("copies"));
        exported.write(&manifest(), BYTES, Retention::All).unwrap();
        let version = exported.manifest_path(WeightsVersion(12));
        let files = [folder.join(ModelFolder::CONFIG), folder.join(ModelFolder::WEIGHTS)];
        let forms = [folder.clone(), version.clone(), version.with_extension("safetensors")];
        let expected = Model { manifest: manifest(), bytes: BYTES.to_vec(), run_file: None };
        for path in forms.iter().chain(&files) {
            assert_eq!(ModelFolder::read(path).unwrap(), expected, "{}", path.display());
            assert_eq!(ModelFolder::manifest(path).unwrap(), manifest());
        }
        let run_file = folder.join(ModelFolder::RUN_FILE);
        fs::write(&run_file, "").unwrap();
        assert_eq!(ModelFolder::read(&files[1]).unwrap().run_file, Some(run_file));
        // Files of other programs and keys of hubs belong to the folder.
        fs::write(folder.join("model.onnx"), "").unwrap();
        let text = fs::read_to_string(&files[0]).unwrap().replacen('{', "{\"tags\": [\"any\"],", 1);
        fs::write(&files[0], text).unwrap();
        assert_eq!(ModelFolder::read(&folder).unwrap().bytes, BYTES);
    }

    #[test]
    fn a_model_is_written_into_a_new_or_empty_directory_alone_and_only_with_matching_weights() {
        let (directory, folder) = written();
        let error = ModelFolder::write(&folder, &manifest(), BYTES).unwrap_err().to_string();
        assert_eq!(error, format!("{} is not empty; choose a new directory", folder.display()));
        let other = directory.path().join("other");
        let error = ModelFolder::write(&other, &manifest(), b"others").unwrap_err().to_string();
        assert!(error.contains("do not match the digest") && !other.exists(), "{error}");
        fs::create_dir(&other).unwrap();
        ModelFolder::write(&other, &manifest(), BYTES).unwrap();
        assert_eq!(fs::read_dir(&other).unwrap().count(), 2);
    }

    #[test]
    fn an_interrupted_write_is_no_model_and_a_second_write_replaces_the_files() {
        let directory = tempfile::tempdir().unwrap();
        let write = |file| {
            let files: [(&str, &[u8]); 2] = [(ModelFolder::CARD, b"card"), (file, b"")];
            ModelFolder::write_with(directory.path(), &manifest(), BYTES, &files).map_err(|error| error.to_string())
        };
        write("missing/file").unwrap_err();
        assert!(refused(directory.path()).contains("config.json is missing"));
        assert!(directory.path().join(ModelFolder::CARD).is_file());
        let partial = directory.path().join("model.safetensors.7.new");
        fs::write(&partial, "").unwrap();
        fs::write(directory.path().join("notes.txt"), "").unwrap();
        assert!(write(ModelFolder::RUN_FILE).unwrap_err().contains("is not empty"));
        fs::remove_file(directory.path().join("notes.txt")).unwrap();
        write(ModelFolder::RUN_FILE).unwrap();
        assert!(ModelFolder::read(directory.path()).unwrap().run_file.is_some());
        assert!(write(ModelFolder::RUN_FILE).unwrap_err().contains("is not empty"));
        // A model card alone is not a part of an interrupted write.
        for file in [ModelFolder::CONFIG, ModelFolder::WEIGHTS, ModelFolder::RUN_FILE, "model.safetensors.7.new"] {
            fs::remove_file(directory.path().join(file)).unwrap();
        }
        assert!(write(ModelFolder::RUN_FILE).unwrap_err().contains("is not empty"));
    }

    #[test]
    fn a_version_next_to_a_model_folder_has_the_manifest_of_its_name() {
        let (_directory, folder) = written();
        let other = Manifest::of(b"others", WeightsVersion(3), 30, crate::architecture());
        VersionStore::new(folder.clone()).write(&other, b"others", Retention::All).unwrap();
        assert_eq!(ModelFolder::read(&folder.join("v000003.safetensors")).unwrap().manifest, other);
        // The manifest beside a file from another program has another form.
        fs::write(folder.join("model.json"), "{}").unwrap();
        assert_eq!(ModelFolder::read(&folder.join(ModelFolder::WEIGHTS)).unwrap().manifest, manifest());
    }

    #[test]
    fn a_file_that_is_missing_or_of_another_form_is_named_with_the_expected_form() {
        let (directory, folder) = written();
        let error = refused(&directory.path().join("models"));
        assert!(error.contains("models/config.json is missing; a model is a directory with config.json"), "{error}");
        let error = refused(&folder.join("model.onnx"));
        assert!(error.contains("model.onnx is no model; expected a directory"), "{error}");
        let error = refused(&folder.join("v000012.json"));
        assert!(error.contains("v000012.json is missing"), "{error}");
        for (config, reason) in [
            ("{", "EOF while parsing"),
            ("{\"library_name\": \"zerofleet\"}", "missing field `weights`"),
            ("{\"model_type\": \"bert\"}", "missing field `library_name`"),
        ] {
            fs::write(folder.join(ModelFolder::CONFIG), config).unwrap();
            let error = refused(&folder);
            let expected = "config.json: expected {\"library_name\": \"zerofleet\", \"weights\": MANIFEST}";
            assert!(error.contains(expected) && error.contains(reason), "{error}");
        }
        let other = serde_json::to_string(&Config { library_name: "timm".into(), weights: manifest() }).unwrap();
        fs::write(folder.join(ModelFolder::CONFIG), other).unwrap();
        assert!(refused(&folder).ends_with("the library is timm"));
        fs::remove_file(folder.join(ModelFolder::WEIGHTS)).unwrap();
        assert!(refused(&folder).contains("model.safetensors is missing"));
    }

    #[test]
    fn damaged_weights_and_files_over_the_limit_are_refused() {
        let (_directory, folder) = written();
        let error = ModelFolder::read_at_most(&folder, 11).unwrap_err().to_string();
        assert!(error.ends_with("model.safetensors has 12 bytes, the limit is 11"), "{error}");
        fs::write(folder.join(ModelFolder::WEIGHTS), "other weight").unwrap();
        assert!(refused(&folder).contains("model.safetensors does not match the digest"));
        fs::write(folder.join(ModelFolder::WEIGHTS), "other weights").unwrap();
        assert!(refused(&folder).ends_with("model.safetensors has 13 bytes, the limit is 12"));
        fs::write(folder.join(ModelFolder::CONFIG), vec![b' '; (1 << 17) + 1]).unwrap();
        assert!(refused(&folder).contains("config.json has 131073 bytes, the limit is 131072"));
    }
}
