//! The directory `incoming/` of a run, to which a program of the user writes weights for publication.
//!
//! The program writes a file under any other name and renames it to `NUMBER.safetensors`. [`Incoming::read`] checks
//! every tensor, publishes the weights as the next version, responds with `NUMBER.json`: the version, or the reason for
//! a refusal, and removes the file. Nothing in the directory is trusted.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, ensure};
use bytes::Bytes;
use metrics::gauge;
use proto::weights::Publisher;
use run_file::learner::Settings;
use serde::Serialize;
use service::ConfigError;
use service::directory::replace;
use training::initial_weights::adopt;
use training::{Layout, ModelLayers, Numbers, checkpoint};
use version_store::{Model, ModelFolder, Retention, VersionStore};
use weights::{Architecture, Manifest, WeightsVersion};

/// Name of the directory below the run directory.
pub(crate) const FOLDER: &str = "incoming";
/// File with the architecture of the run, as in a manifest.
const ARCHITECTURE: &str = "architecture.json";
/// Key of the training step in the metadata of a file.
const TRAINING_STEP: &str = "training_step";
/// Extension of weights.
const WEIGHTS: &str = ".safetensors";
/// Extension of responses.
const RESPONSE: &str = ".json";
/// Number of responses to keep, those with the highest numbers. A program reads a response within minutes.
const RESPONSES_KEPT: usize = 100;
/// Maximum size of a file in addition to the numbers: names and shapes of the largest networks, and metadata.
const HEADER_BYTES_MAX: u64 = 4 << 20;

/// The directory of incoming weights, and the store of published versions.
#[derive(Debug)]
pub(crate) struct Incoming {
    folder: PathBuf,
    architecture: Architecture,
    layout: Layout,
    /// Maximum size of a file in bytes.
    bytes_max: u64,
    versions: VersionStore,
    versions_kept: usize,
    publisher: Publisher,
    /// Training step of the latest version.
    training_step: u64,
    /// Numbers of files that stay until the next start, because a file operation failed.
    skipped: BTreeSet<u64>,
}

/// The contents of a response.
#[derive(Debug, Serialize)]
#[serde(rename_all = "snake_case")]
enum Response {
    Version(WeightsVersion),
    Error(String),
}

impl Incoming {
    /// Creates the directory, and publishes the latest version of the run. A run without a version of this architecture
    /// gets one with initial weights, so that actors start to play.
    ///
    /// # Errors
    /// A directory cannot be read or written, the architecture is out of range, or `learner.initial_weights` do not
    /// suit the network.
    pub(crate) fn open(settings: &Settings, publisher: Publisher) -> anyhow::Result<Self> {
        let folder = settings.run.directory.join(FOLDER);
        service::directory::writable(&folder)?;
        let architecture = settings.architecture();
        replace(&folder.join(ARCHITECTURE), &serde_json::to_vec_pretty(&architecture)?)?;
        let layout = ModelLayers::new(&architecture)?.layout();
        let numbers: usize = layout.parameters.iter().chain(&layout.statistics).map(|entry| entry.len).sum();
        let mut incoming = Self {
            folder,
            architecture,
            layout,
            bytes_max: (numbers * size_of::<f32>()) as u64 + HEADER_BYTES_MAX,
            versions: VersionStore::of_learner(&settings.run.directory),
            versions_kept: settings.learner.versions_kept,
            publisher,
            training_step: 0,
            skipped: BTreeSet::new(),
        };
        incoming.publish_newest(settings)?;
        Ok(incoming)
    }

    /// Publishes the file with the lowest number, if there is one, responds, and removes the file. A file that cannot
    /// be read, answered or removed stays, and is skipped until the next start.
    ///
    /// # Errors
    /// A file operation fails. If the weights could not be stored, the next call tries again.
    pub(crate) fn read(&mut self) -> anyhow::Result<()> {
        let files = numbered(&self.folder, WEIGHTS)?;
        let next = files.iter().filter(|(number, _)| !self.skipped.contains(number)).min();
        let Some((number, path)) = next else { return Ok(()) };
        let weights = self.weights(path);
        let is_unread = weights.as_ref().is_err_and(|error| error.is::<io::Error>());
        let response = match weights {
            Ok((numbers, training_step)) => {
                let version = self.publish(&numbers, training_step)?;
                // The next start must not publish older weights again.
                files.iter().filter(|(other, _)| other < number).for_each(|(_, path)| drop(fs::remove_file(path)));
                Response::Version(version)
            }
            Err(error) => {
                let reason = service::chain(&error);
                tracing::warn!("refused {}: {reason}", path.display());
                Response::Error(reason)
            }
        };
        self.skipped.insert(*number);
        self.remove_responses()?;
        respond(&path.with_extension(&RESPONSE[1..]), &response)?;
        if !is_unread {
            fs::remove_file(path).with_context(|| format!("remove {}", path.display()))?;
            self.skipped.remove(number);
        }
        Ok(())
    }

    /// Removes old responses to make room for another one.
    fn remove_responses(&self) -> anyhow::Result<()> {
        let mut responses = numbered(&self.folder, RESPONSE)?;
        responses.sort();
        for (_, path) in responses.iter().rev().skip(RESPONSES_KEPT - 1) {
            if let Err(error) = fs::remove_file(path) {
                tracing::warn!("cannot remove {}: {error}", path.display());
            }
        }
        Ok(())
    }

    /// Reads and checks a file. Returns the numbers and the training step.
    fn weights(&self, path: &Path) -> anyhow::Result<(Numbers, u64)> {
        ensure!(fs::symlink_metadata(path)?.is_file(), "expected a regular file");
        let mut bytes = Vec::new();
        File::open(path)?.take(self.bytes_max + 1).read_to_end(&mut bytes)?;
        let most = self.bytes_max;
        ensure!(bytes.len() as u64 <= most, "the file has more than {most} bytes, the most for this network");
        let numbers = checkpoint::read(&self.layout, &bytes)?;
        let training_step = match checkpoint::note(&bytes, TRAINING_STEP)? {
            Some(text) => text.parse().with_context(|| format!("read {TRAINING_STEP} in the metadata"))?,
            None => self.training_step.saturating_add(1),
        };
        Ok((numbers, training_step))
    }

    fn publish_newest(&mut self, settings: &Settings) -> anyhow::Result<()> {
        let newest = self.versions.newest()?;
        if let Some((manifest, bytes)) = newest.filter(|(manifest, _)| manifest.architecture == self.architecture) {
            return self.serve(manifest, bytes.into());
        }
        if let Some(newest) = self.versions.pin_trained()? {
            tracing::warn!("the network starts from scratch; trained weights up to {newest} are kept without a limit");
        }
        let numbers = self
            .initial(settings)
            .map_err(|error| ConfigError::invalid("learner.initial_weights", service::chain(&error)))?;
        self.publish(&numbers, 0).map(drop)
    }

    /// Returns the numbers of a new network, which begins with `learner.initial_weights`.
    fn initial(&self, settings: &Settings) -> anyhow::Result<Numbers> {
        let mut numbers = Numbers::initial(&self.layout, settings.run.seed);
        let path = Path::new(&settings.learner.initial_weights);
        if !path.as_os_str().is_empty() {
            let Model { manifest, bytes, .. } = ModelFolder::read(path)?;
            let adopted = adopt([&manifest.architecture, &self.architecture], &bytes, &self.layout, &mut numbers)?;
            tracing::info!("beginning with the weights in {}; {adopted}", path.display());
        }
        Ok(numbers)
    }

    /// Stores and serves the next version. The file has the same form as from a learner, without the metadata.
    fn publish(&mut self, numbers: &Numbers, training_step: u64) -> anyhow::Result<WeightsVersion> {
        let bytes = checkpoint::write(&self.layout, &numbers.parameters, &numbers.statistics)?;
        let version = self.versions.next_version()?;
        let manifest = Manifest::of(&bytes, version, training_step, self.architecture.clone());
        let stored = self.versions.write(&manifest, &bytes, Retention::Latest(self.versions_kept));
        gauge!("zerofleet_learner_write_failed", "what" => "weights").set(if stored.is_err() { 1.0 } else { 0.0 });
        stored?;
        self.serve(manifest, bytes.into())?;
        tracing::info!("published weights {version} at training step {training_step}");
        Ok(version)
    }

    fn serve(&mut self, manifest: Manifest, bytes: Bytes) -> anyhow::Result<()> {
        let Manifest { version, training_step, .. } = manifest;
        self.publisher.publish(manifest, bytes).with_context(|| format!("serve weights {version}"))?;
        self.training_step = training_step;
        gauge!("zerofleet_learner_weights_version").set(version.0 as f64);
        gauge!("zerofleet_learner_steps_total").set(training_step as f64);
        Ok(())
    }
}

fn respond(path: &Path, response: &Response) -> anyhow::Result<()> {
    Ok(replace(path, &serde_json::to_vec(response)?)?)
}

/// Returns number and path of every file named by digits and this extension. Other names and directories are left out.
///
/// # Errors
/// The directory cannot be read.
fn numbered(folder: &Path, extension: &str) -> anyhow::Result<Vec<(u64, PathBuf)>> {
    let entries = fs::read_dir(folder).and_then(|entries| entries.collect::<io::Result<Vec<_>>>());
    let entries = entries.with_context(|| format!("list {}", folder.display()))?;
    let numbered = entries.into_iter().filter_map(|entry| {
        let name = entry.file_name();
        let digits = name.to_str()?.strip_suffix(extension)?;
        let is_plain = digits.bytes().all(|byte| byte.is_ascii_digit()) && !entry.file_type().ok()?.is_dir();
        digits.parse().ok().filter(|_| is_plain).map(|number| (number, entry.path()))
    });
    Ok(numbered.collect())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use proto::weights::WeightsService;
    use run_file::learner::Config;

    use super::*;

    /// A run of tic-tac-toe with a small network.
    struct Run {
        folder: tempfile::TempDir,
        incoming: Incoming,
    }

    fn open(folder: &Path) -> Incoming {
        let mut config = Config::default();
        (config.run.game, config.run.directory) = ("tic_tac_toe".to_owned(), folder.to_owned());
        (config.network.channels, config.network.blocks) = (16, 1);
        Incoming::open(&config.settings().unwrap(), WeightsService::new(2).1).unwrap()
    }

    impl Run {
        fn new() -> Self {
            let folder = tempfile::tempdir().unwrap();
            let incoming = open(folder.path());
            Self { folder, incoming }
        }

        fn path(&self, name: &str) -> PathBuf {
            self.folder.path().join(FOLDER).join(name)
        }

        /// Returns the latest published file.
        fn newest(&self) -> Vec<u8> {
            self.incoming.publisher.newest().unwrap().bytes.to_vec()
        }

        /// Writes a file of weights with this number, and returns the response.
        fn send(&mut self, number: u64, bytes: &[u8]) -> String {
            fs::write(self.path(&format!("{number:06}.safetensors")), bytes).unwrap();
            self.response(number)
        }

        fn response(&mut self, number: u64) -> String {
            self.incoming.read().unwrap();
            assert!(fs::symlink_metadata(self.path(&format!("{number:06}.safetensors"))).is_err(), "it is removed");
            fs::read_to_string(self.path(&format!("{number:06}.json"))).unwrap()
        }
    }

    /// Changes the header of a safetensors file.
    fn with_header(bytes: &[u8], change: impl FnOnce(String) -> String) -> Vec<u8> {
        let (size, rest) = bytes.split_first_chunk::<8>().unwrap();
        let (header, numbers) = rest.split_at(u64::from_le_bytes(*size) as usize);
        let header = change(String::from_utf8(header.to_vec()).unwrap());
        [&(header.len() as u64).to_le_bytes()[..], header.as_bytes(), numbers].concat()
    }

    fn noted(bytes: &[u8], step: &str) -> Vec<u8> {
        let note = format!("{{\"__metadata__\":{{\"training_step\":\"{step}\"}},");
        with_header(bytes, |header| header.replacen('{', &note, 1))
    }

    #[test]
    fn good_weights_become_the_next_version_with_the_stated_or_the_next_training_step() {
        let mut run = Run::new();
        let first = run.newest();
        for (number, bytes, step) in [(7, noted(&first, "40"), 40), (8, first.clone(), 41)] {
            let version = number - 5;
            assert_eq!(run.send(number, &bytes), format!("{{\"version\":{version}}}"));
            let (manifest, stored) = VersionStore::of_learner(run.folder.path()).newest().unwrap().unwrap();
            assert_eq!((manifest.version.0, manifest.training_step), (version, step));
            assert!(stored == first && run.newest() == first, "metadata are not published");
        }
        let text = fs::read(run.path(ARCHITECTURE)).unwrap();
        assert_eq!(serde_json::from_slice::<Architecture>(&text).unwrap(), run.incoming.architecture);
    }

    #[test]
    fn other_files_are_refused_with_the_reason_or_ignored_and_publish_nothing() {
        let mut run = Run::new();
        let first = run.newest();
        let mut not_finite = first.clone();
        let last = not_finite.len() - 4;
        not_finite[last..].copy_from_slice(&f32::NAN.to_le_bytes());
        let renamed = with_header(&first, |header| header.replacen("value.output.weight", "value.output.height", 1));
        let half = with_header(&first, |header| header.replacen("\"F32\"", "\"I32\"", 1));
        let large = vec![0; run.incoming.bytes_max as usize + 1];
        for (number, bytes, reason) in [
            (1, &renamed[..], "value.output.weight"),
            (2, &half[..], "expected F32"),
            (3, &not_finite[..], "NaN"),
            (4, &first[..first.len() - 1], "safetensors"),
            (5, &large[..], "more than"),
            (6, &noted(&first, "x")[..], "training_step"),
            (7, &[][..], "safetensors"),
        ] {
            let response = run.send(number, bytes);
            assert!(response.starts_with("{\"error\":") && response.contains(reason), "{number}: {response}");
        }
        symlink("/etc/passwd", run.path("000008.safetensors")).unwrap();
        assert!(run.response(8).contains("regular file"));
        fs::create_dir(run.path("000009.safetensors")).unwrap();
        for name in [
            "a.safetensors",
            "-1.safetensors",
            "1.safetensors.new",
            ".safetensors",
            "99999999999999999999999.safetensors",
        ] {
            fs::write(run.path(name), &first).unwrap();
        }
        run.incoming.read().unwrap();
        assert!(run.path("a.safetensors").exists() && run.path("000009.safetensors").exists());
        assert_eq!(run.incoming.publisher.newest().unwrap().manifest.version, WeightsVersion(1));
    }

    #[test]
    fn a_second_start_publishes_the_latest_version_and_keeps_weights_and_responses() {
        let mut run = Run::new();
        let first = run.newest();
        run.send(1, &noted(&first, "9"));
        fs::write(run.path("000002.safetensors"), &first).unwrap();
        run.incoming = open(run.folder.path());
        let newest = run.incoming.publisher.newest().unwrap();
        assert_eq!((newest.manifest.version.0, newest.manifest.training_step), (2, 9));
        assert!(run.path("000001.json").exists());
        assert_eq!(run.response(2), "{\"version\":3}");
        assert_eq!(run.incoming.training_step, 10);
    }

    #[test]
    fn old_responses_are_removed_and_a_directory_that_cannot_be_read_is_an_error() {
        let mut run = Run::new();
        (1..=150).for_each(|number| fs::write(run.path(&format!("{number:06}.json")), "{}").unwrap());
        run.send(151, b"");
        let left = numbered(&run.incoming.folder, RESPONSE).unwrap();
        assert_eq!((left.len(), left.iter().min().unwrap().0), (RESPONSES_KEPT, 52));
        fs::remove_dir_all(&run.incoming.folder).unwrap();
        assert!(run.incoming.read().unwrap_err().to_string().starts_with("list "));
    }
}
