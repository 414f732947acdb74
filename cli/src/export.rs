//! Writes a weights version for programs outside the run: as safetensors, as models of ONNX, or as a model folder for
//! a hub. Start with [`Form`].

use std::fs;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, ensure};
use fleet::run_directory::{RunDirectory, load_run};
use run_file::RunFile;
use service::config::{Compared, Sources, compared, print};
use service::directory::{if_exists, replace};
use strength::ledger::{Ledger, Player};
use version_store::{ModelFolder, Retention, VersionStore};
use weights::Manifest;

use crate::model_card::Card;
use crate::portable::portable;
use crate::report::Summary;

/// Options for the form of an exported version.
#[derive(Debug, Clone, clap::Args)]
#[group(skip)]
pub(crate) struct Form {
    /// Files to write.
    #[arg(long, value_enum, default_value_t = Format::Safetensors)]
    format: Format,
    /// Number format of the weights in safetensors; models of ONNX have float32.
    #[arg(long, value_enum, default_value_t = Precision::F32)]
    precision: Precision,
    /// License of the weights on the model card: an identifier of the hub, such as cc-by-4.0 [default: unknown].
    #[arg(long, value_name = "ID")]
    license: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Format {
    /// The weights with the manifest, as in the directory of the run.
    Safetensors,
    /// Models of ONNX, for any runtime: model.onnx, or initial.onnx and recurrent.onnx.
    Onnx,
    /// A model folder: safetensors, models of ONNX, configuration, run file and model card.
    Hub,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Precision {
    /// The published numbers.
    F32,
    /// Rounded to bfloat16, which halves the size.
    Bf16,
}

impl Form {
    /// Writes a version of a run into `folder`, and returns the paths to print.
    ///
    /// # Errors
    /// The network cannot have this form, a file exists already or cannot be written, or a file of the run is invalid.
    pub(crate) fn write(
        &self,
        run: &RunDirectory,
        (manifest, bytes): (Manifest, Vec<u8>),
        folder: PathBuf,
    ) -> anyhow::Result<Vec<PathBuf>> {
        let is_with_card = self.format == Format::Hub;
        ensure!(is_with_card || self.license.is_none(), "--license: only --format hub writes a model card");
        let (manifest, bytes) = match self.precision {
            Precision::F32 => (manifest, bytes),
            Precision::Bf16 => {
                ensure!(self.format != Format::Onnx, "--precision bf16: models of ONNX have float32");
                let bytes = network::in_bfloat16(&bytes)?;
                let Manifest { version, training_step, architecture, .. } = manifest;
                (Manifest::of(&bytes, version, training_step, architecture), bytes)
            }
        };
        match self.format {
            Format::Safetensors => Ok(vec![write_version(&manifest, &bytes, folder)?]),
            Format::Onnx => write_models(&manifest, &bytes, &folder),
            Format::Hub => {
                let license = self.license.as_deref().unwrap_or("unknown");
                write_folder(run, &manifest, &bytes, license, &folder)?;
                Ok(vec![folder])
            }
        }
    }
}

fn write_version(manifest: &Manifest, bytes: &[u8], folder: PathBuf) -> anyhow::Result<PathBuf> {
    let copies = VersionStore::new(folder);
    let path = copies.manifest_path(manifest.version);
    ensure!(!path.exists(), "{} already exists", path.display());
    copies.write(manifest, bytes, Retention::All)?;
    Ok(path)
}

fn write_models(manifest: &Manifest, bytes: &[u8], folder: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let models = onnx::models(&manifest.architecture, bytes);
    let models = models.with_context(|| format!("convert weights {}", manifest.version))?;
    let paths: Vec<PathBuf> = models.iter().map(|(file, _)| folder.join(file)).collect();
    for path in &paths {
        ensure!(!path.exists(), "{} already exists", path.display());
    }
    fs::create_dir_all(folder).with_context(|| format!("create {}", folder.display()))?;
    for (path, (_, contents)) in paths.iter().zip(&models) {
        replace(path, contents)?;
    }
    Ok(paths)
}

/// Writes a model folder. The first file is written after every conversion has succeeded, the configuration last.
fn write_folder(
    run: &RunDirectory,
    manifest: &Manifest,
    bytes: &[u8],
    license: &str,
    folder: &Path,
) -> anyhow::Result<()> {
    let models = match onnx::models(&manifest.architecture, bytes) {
        Err(error @ onnx::Error::Size { .. }) => {
            writeln!(io::stderr(), "the folder has no models of ONNX: {error}")?;
            Vec::new()
        }
        models => models.with_context(|| format!("convert weights {}", manifest.version))?,
    };
    let config: RunFile = load_run(run)?;
    let ratings = Ledger::load(&run.path().join("ratings.json"), &manifest.architecture.game)?.ratings();
    let card = Card {
        run: run.name(),
        manifest,
        summary: &summary(run)?,
        rated: ratings.iter().find(|rated| rated.player == Player::Version(manifest.version)),
        differences: &differences(&config)?,
        models: &models.iter().map(|(file, _)| *file).collect::<Vec<_>>(),
        license,
    };
    let (card, config) = (card.markdown(), print(&portable(config))?);
    let mut files: Vec<(&str, &[u8])> = models.iter().map(|(file, contents)| (*file, contents.as_slice())).collect();
    files.extend([(ModelFolder::RUN_FILE, config.as_bytes()), (ModelFolder::CARD, card.as_bytes())]);
    ModelFolder::write_with(folder, manifest, bytes, &files)
}

/// Returns the summary of the last session; empty if no session has stopped yet.
fn summary(run: &RunDirectory) -> anyhow::Result<Summary> {
    let path = run.summary();
    let text = if_exists(fs::read(&path)).with_context(|| format!("read {}", path.display()))?;
    let summary = text.map(|text| serde_json::from_slice::<Summary>(&text)).transpose();
    Ok(summary.with_context(|| format!("parse {}", path.display()))?.unwrap_or_default())
}

/// Returns the keys with another value than in the preset of the game, except keys that describe one machine.
fn differences(config: &RunFile) -> anyhow::Result<Vec<Compared>> {
    let sets = vec![format!("run.game={}", config.run.game)];
    let preset: RunFile = Sources { file: None, env: std::iter::empty(), sets }.read(games::preset)?.load()?;
    let mut keys = compared(&portable(config.clone()), &portable(preset))?;
    keys.retain(|key| key.other.is_some());
    Ok(keys)
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;
    use run_metrics::RunMetrics;
    use strength::ledger::Tally;
    use weights::{Architecture, Model, WeightsVersion};

    use super::*;
    use crate::kept_versions::kept;
    use crate::report::Origin;
    use crate::trained::tests::{architecture, begin_with, publish};

    #[derive(clap::Parser)]
    struct CommandLine {
        #[command(flatten)]
        form: Form,
    }

    /// A run with the published version 7, in a directory for a copy next to it.
    struct Exported {
        directory: tempfile::TempDir,
        run: RunDirectory,
    }

    impl Exported {
        fn new(game: &str, model: Model) -> Self {
            let directory = tempfile::tempdir().unwrap();
            let run = begin_with(directory.path(), game);
            publish(&run, Architecture { model, ..architecture(&game.parse().unwrap()) }, 7);
            Self { directory, run }
        }

        fn folder(&self) -> PathBuf {
            self.directory.path().join("copy")
        }

        /// Exports with these options, and returns the paths below the directory of the copy.
        fn write(&self, options: &str) -> Result<Vec<String>, String> {
            let words = ["export"].into_iter().chain(options.split_whitespace());
            let CommandLine { form } = CommandLine::try_parse_from(words).unwrap();
            let written = form.write(&self.run, kept(&self.run, None).unwrap(), self.folder());
            let paths = written.map_err(|error| service::chain(&error))?;
            let name = |path: &PathBuf| path.strip_prefix(self.folder()).unwrap().display().to_string();
            Ok(paths.iter().map(name).collect())
        }

        /// Returns the sorted names of the files in the directory of the copy.
        fn files(&self) -> Vec<String> {
            let entries = fs::read_dir(self.folder()).unwrap();
            let mut names: Vec<_> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
            names.sort();
            names
        }

        fn text(&self, file: &str) -> String {
            fs::read_to_string(self.folder().join(file)).unwrap()
        }
    }

    #[test]
    fn a_version_is_exported_once_as_the_run_keeps_it() {
        let exported = Exported::new("tic_tac_toe", Model::Alphazero);
        assert_eq!(exported.write(""), Ok(vec!["v000007.json".to_owned()]));
        let copy = VersionStore::new(exported.folder()).read(WeightsVersion(7)).unwrap();
        assert_eq!(copy, kept(&exported.run, None).unwrap());
        let again = exported.write("").unwrap_err();
        assert_eq!(again, format!("{} already exists", exported.folder().join("v000007.json").display()));
    }

    #[test]
    fn bfloat16_halves_the_file_and_has_a_manifest_of_its_own() {
        let exported = Exported::new("tic_tac_toe", Model::Alphazero);
        exported.write("--precision bf16").unwrap();
        let (manifest, bytes) = VersionStore::new(exported.folder()).read(WeightsVersion(7)).unwrap();
        let (before, of_run) = kept(&exported.run, None).unwrap();
        let expected = Manifest::of(&bytes, before.version, before.training_step, before.architecture);
        assert_eq!(manifest, expected);
        assert!(bytes.len() < of_run.len() * 6 / 10, "{} of {} bytes", bytes.len(), of_run.len());
        // Both numbers of the published weights, 1 and 0.01, as the nearest numbers of bfloat16.
        let mut reader = network::Reader::new(&bytes).unwrap();
        let stem = network::Layers::new(&manifest.architecture).unwrap().stem;
        let first = |role, reader: &mut network::Reader<'_>| reader.tensor("", &stem.tensor(role)).unwrap()[0];
        assert_eq!(first(network::Role::NormScale, &mut reader), 1.0);
        assert_eq!(first(network::Role::Convolution, &mut reader), f32::from_bits(0x3c24_0000));
    }

    #[test]
    fn models_of_onnx_are_written_by_name_and_never_over_other_files() {
        let alphazero = Exported::new("tic_tac_toe", Model::Alphazero);
        assert_eq!(alphazero.write("--format onnx"), Ok(vec!["model.onnx".to_owned()]));
        assert!(alphazero.write("--format onnx").unwrap_err().ends_with("model.onnx already exists"));
        let refused = alphazero.write("--format onnx --precision bf16").unwrap_err();
        assert_eq!(refused, "--precision bf16: models of ONNX have float32");
        for format in ["", "--format onnx "] {
            let refused = alphazero.write(&format!("{format}--license mit")).unwrap_err();
            assert_eq!(refused, "--license: only --format hub writes a model card");
        }
        let muzero = Exported::new("catch", Model::Muzero { support: 5 });
        muzero.write("--format onnx").unwrap();
        assert_eq!(muzero.files(), ["initial.onnx", "recurrent.onnx"]);
    }

    #[test]
    fn a_model_folder_is_written_whole_and_without_places_of_this_machine() {
        let exported = Exported::new("tic_tac_toe", Model::Alphazero);
        let mut config: RunFile = load_run(&exported.run).unwrap();
        (config.search.c_init, config.run.directory) = (2.5, "/secret/runs/first".into());
        config.security.token_file = "/secret/token".into();
        fs::write(exported.run.config(), print(&config).unwrap()).unwrap();
        exported.write("--format hub --license cc-by-4.0").unwrap();
        assert_eq!(exported.files(), ["README.md", "config.json", "model.onnx", "model.safetensors", "run.toml"]);
        let (manifest, bytes) = kept(&exported.run, None).unwrap();
        assert_eq!(fs::read(exported.folder().join("model.safetensors")).unwrap(), bytes);
        let json: serde_json::Value = serde_json::from_str(&exported.text("config.json")).unwrap();
        assert_eq!(json["weights"], serde_json::to_value(&manifest).unwrap());
        let run = service::config::parse_file::<RunFile>("run.toml", &exported.text("run.toml")).unwrap();
        assert_eq!((run.search.c_init, run.run.game.as_str()), (2.5, "tic_tac_toe"));
        for file in ["README.md", "config.json", "run.toml"] {
            assert!(!exported.text(file).contains("secret"), "{file}: {}", exported.text(file));
        }
        let card = exported.text("README.md");
        for part in ["\nlicense: \"cc-by-4.0\"\n", "| search.c_init | 2.5 | ", &manifest.digest.to_string()] {
            assert!(card.contains(part), "{part}: {card}");
        }
        assert!(!card.contains("model-index") && card.contains("has not measured"), "{card}");
    }

    #[test]
    fn a_card_states_strength_with_intervals_and_the_place_of_the_training() {
        let exported = Exported::new("tic_tac_toe", Model::Alphazero);
        let accuracy = [("raw/preserving/overall".to_owned(), 0.96)].into();
        let last = RunMetrics { elapsed_seconds: 754.0, accuracy, ..RunMetrics::default() };
        let origin = Origin { commit: "abc1234".into(), processor: "Any CPU".into(), cores: 4, ..Origin::default() };
        let summary = Summary { seed: 11, origin, last, ..Summary::default() };
        fs::write(exported.run.summary(), serde_json::to_vec(&summary).unwrap()).unwrap();
        let mut ledger = Ledger::new("tic_tac_toe");
        ledger.add(Player::Version(WeightsVersion(7)), Player::Random, Tally { pairs: [0, 0, 4, 4, 24] });
        ledger.save(&exported.run.path().join("ratings.json"), &ledger.ratings()).unwrap();
        exported.write("--format hub").unwrap();
        let card = exported.text("README.md");
        for part in [
            "\npipeline_tag: \"reinforcement-learning\"\ntags: [\"tic_tac_toe\",\"alphazero\"]\n",
            "\"type\":\"elo\"",
            "Elo over uniformly random play at 0, 95 % interval",
            "from 64 games",
            "outcome kept, by the latest version that the run measured: 0.96",
            "12:34",
            "Any CPU, 4 cores",
            "abc1234",
            "| seed | 11 |",
        ] {
            assert!(card.contains(part), "{part}: {card}");
        }
        // The latest measured version may be another one.
        let (header, _) = card.split_once("\n---\n").unwrap();
        assert!(!header.contains("accuracy"), "{header}");
    }
}
