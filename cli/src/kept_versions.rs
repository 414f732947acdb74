//! `zerofleet weights`: lists and exports the weights versions of a run, lists models, and serves weights of a learner
//! of the user.
//!
//! The learner keeps the latest versions in `weights/`. The arena keeps versions spread over the run, and the best
//! rated versions, in `arena/`. [`KeptVersions`] reads both directories, and `play`, `eval` and `match` load versions
//! from these directories.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context as _, bail};
use figures::table::Table;
use fleet::run_directory::RunDirectory;
use fleet::run_directory::load_run;
use game::Game as _;
use run_file::RunFile;
use run_metrics::words::unix_seconds;
use serde::Serialize;
use service::CommonArgs;
use strength::ledger::{Ledger, Player, Rated, best};
use version_store::{VersionStore, accepted};
use weights::{Digest, Manifest, WeightsVersion};

use crate::export;
use crate::models;
use crate::printed_command;
use crate::screen::{MISSING, date};
use crate::trained;
use crate::weights_server;

/// Number of digest digits that the table shows.
const DIGEST_DIGITS: usize = 12;

/// Lists, exports or serves weights versions, or lists models.
#[derive(Debug, Clone, clap::Subcommand)]
pub(crate) enum Request {
    /// Lists the weights versions of a run, with ratings.
    ///
    /// Shows version, training step, date, size, digest, rating, and the rule by which each version is kept: newest
    /// (learner.versions_kept), spread over the run (arena.past_versions), best rated (arena.best_versions), accepted
    /// by the gate (arena.gate).
    Ls {
        /// Name of the run.
        #[arg(long, value_name = "NAME")]
        run: String,
        /// Directory of all runs.
        #[arg(long, value_name = "DIR", default_value = "runs")]
        runs: PathBuf,
        /// Print one JSON array instead of a table.
        #[arg(long)]
        json: bool,
    },
    /// Lists the bundled models, which play without a run.
    ///
    /// Shows game, parameters and description. The option --weights of other commands accepts the names. The directory
    /// in the environment variable ZEROFLEET_MODELS comes before the directories next to the program.
    Models,
    /// Writes a version into a directory, and prints the path of the result.
    ///
    /// By default, the weights are written next to the manifest, as safetensors. The key `inference.weights` of an
    /// inference server accepts the manifest path.
    Export {
        /// Name of the run.
        #[arg(long, value_name = "NAME")]
        run: String,
        /// Directory of all runs.
        #[arg(long, value_name = "DIR", default_value = "runs")]
        runs: PathBuf,
        /// Version, as listed by zerofleet weights ls [default: the latest].
        #[arg(long, value_name = "N", value_parser = trained::version)]
        version: Option<WeightsVersion>,
        /// Directory for the copy; created if missing. A model folder needs an empty directory.
        #[arg(long, value_name = "DIR")]
        output: PathBuf,
        #[command(flatten)]
        form: export::Form,
    },
    /// Serves weights that your own learner writes, in place of a learner.
    ///
    /// `zerofleet train --learner own` starts this process. It checks and publishes the files in the directory
    /// `incoming` of the run. The options are those of a learner.
    Serve(CommonArgs),
}

impl Request {
    /// Prints the weights versions of a run, exports a version, or serves weights until the process drains.
    pub(crate) fn run(self, output: &mut impl Write) -> anyhow::Result<ExitCode> {
        match self {
            Request::Serve(common) => return Ok(weights_server::run(common)),
            Request::Ls { run, runs, json } => {
                let versions = list(&RunDirectory::existing(&runs, &run)?)?;
                if json {
                    serde_json::to_writer_pretty(&mut *output, &versions)?;
                    writeln!(output)?;
                } else {
                    write_table(&versions, output)?;
                }
            }
            Request::Models => models::write_table(output)?,
            Request::Export { run, runs, version, output: folder, form } => {
                let run = RunDirectory::existing(&runs, &run)?;
                for path in form.write(&run, kept(&run, version)?, folder)? {
                    writeln!(output, "{}", path.display())?;
                }
            }
        }
        output.flush().context("write the versions")?;
        Ok(ExitCode::SUCCESS)
    }
}

/// Returns a weights version of a run, by default the latest.
///
/// # Errors
/// The run does not keep the version or has published none, or the files are damaged.
pub(crate) fn kept(run: &RunDirectory, version: Option<WeightsVersion>) -> anyhow::Result<(Manifest, Vec<u8>)> {
    match version {
        Some(version) => KeptVersions::of(run).bytes(version),
        None => newest(run),
    }
}

fn newest(run: &RunDirectory) -> anyhow::Result<(Manifest, Vec<u8>)> {
    let published = VersionStore::of_learner(run.path());
    if let Some(newest) = published.newest()? {
        return Ok(newest);
    }
    if published.next_version()?.0 > 1 {
        bail!(
            "all weights versions in {} are damaged; publish a new version with {}",
            published.directory().display(),
            printed_command::train(run)
        );
    }
    bail!("run {} has published no weights yet; train it with {}", run.name(), printed_command::train(run))
}

/// The weights versions in the directories `weights/` and `arena/` of a run.
#[derive(Debug)]
pub(crate) struct KeptVersions {
    run: RunDirectory,
    newest: VersionStore,
    past: VersionStore,
}

impl KeptVersions {
    /// Opens the version directories of a run, without reading files.
    pub(crate) fn of(run: &RunDirectory) -> Self {
        let (newest, past) = (VersionStore::of_learner(run.path()), VersionStore::of_arena(run.path()));
        Self { run: run.clone(), newest, past }
    }

    /// Returns the manifest and the bytes of a version.
    ///
    /// # Errors
    /// The run does not keep the version, or the files are damaged.
    pub(crate) fn bytes(&self, version: WeightsVersion) -> anyhow::Result<(Manifest, Vec<u8>)> {
        let kept = VersionStore::kept(self.run.path())?;
        if let Some(store) = kept.get(&version) {
            return store.read(version);
        }
        let kept: Vec<String> = kept.keys().map(WeightsVersion::to_string).collect();
        bail!("run {} has no weights {version}; kept versions are {}", self.run.name(), kept.join(", "))
    }

    /// Returns all versions with ratings, in ascending order. The rule of a version in `arena/` is `Accepted` if the
    /// gate accepted it last, `Best` for the `best_max` best rated versions, and otherwise `Spread`.
    fn list(&self, ratings: &[Rated], best_max: usize, accepted: Option<WeightsVersion>) -> anyhow::Result<Vec<Kept>> {
        let mut versions: Vec<Kept> = Vec::new();
        for version in self.newest.versions()? {
            versions.extend(Kept::read(&self.newest, version, Rule::Newest, ratings)?);
        }
        let past = self.past.versions()?;
        let best = best(ratings, &past, best_max);
        for version in past {
            let rule = match version {
                version if accepted == Some(version) => Rule::Accepted,
                version if best.contains(&version) => Rule::Best,
                _ => Rule::Spread,
            };
            match versions.iter_mut().find(|kept| kept.version == version) {
                Some(kept) => kept.kept_by.push(rule),
                None => versions.extend(Kept::read(&self.past, version, rule, ratings)?),
            }
        }
        versions.sort_by_key(|kept| kept.version);
        Ok(versions)
    }
}

/// The rule that keeps a weights version.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum Rule {
    Newest,
    Spread,
    Best,
    Accepted,
}

/// A kept weights version: a row of the table.
#[derive(Debug, Clone, PartialEq, Serialize)]
struct Kept {
    version: WeightsVersion,
    training_step: u64,
    /// Modification time of the file, in seconds since 1970.
    unix_seconds: u64,
    size_bytes: u64,
    digest: Digest,
    /// Elo rating by the arena, with a 95 % interval.
    elo: Option<f64>,
    elo_low: Option<f64>,
    elo_high: Option<f64>,
    kept_by: Vec<Rule>,
}

impl Kept {
    /// Reads a version from `store`; `None` if a live run has removed the manifest meanwhile.
    fn read(
        store: &VersionStore,
        version: WeightsVersion,
        rule: Rule,
        ratings: &[Rated],
    ) -> anyhow::Result<Option<Self>> {
        let path = store.manifest_path(version);
        match store.manifest(version).and_then(|manifest| Self::new(&manifest, &path, rule, ratings)) {
            Err(_) if !path.exists() => Ok(None),
            kept => kept.map(Some),
        }
    }

    fn new(manifest: &Manifest, path: &Path, rule: Rule, ratings: &[Rated]) -> anyhow::Result<Self> {
        let &Manifest { version, training_step, digest, size_bytes, .. } = manifest;
        let written = fs::metadata(path).and_then(|metadata| metadata.modified());
        let written = written.with_context(|| format!("read {}", path.display()))?;
        let rated = ratings.iter().find(|rated| rated.player == Player::Version(version));
        Ok(Self {
            version,
            training_step,
            unix_seconds: unix_seconds(written) as u64,
            size_bytes,
            digest,
            elo: rated.map(|rated| rated.elo),
            elo_low: rated.map(|rated| rated.low),
            elo_high: rated.map(|rated| rated.high),
            kept_by: vec![rule],
        })
    }
}

/// Returns the versions of a run, with ratings by the arena.
fn list(run: &RunDirectory) -> anyhow::Result<Vec<Kept>> {
    let config: RunFile = load_run(run)?;
    let game = bridge::config::game(&config.run, &config.environment)?.rules();
    let ratings = Ledger::load(&run.path().join("ratings.json"), &game.spec().name)?.ratings();
    let accepted = accepted::read(&run.path().join(accepted::FILE))?;
    KeptVersions::of(run).list(&ratings, config.arena.best_versions, accepted)
}

fn write_table(versions: &[Kept], output: &mut impl Write) -> anyhow::Result<()> {
    let columns = ["version", "step", "written", "MB", "digest", "Elo", "95 % interval"];
    let mut table = Table::default().numbers(columns).words(["kept by"]);
    for kept in versions {
        let Kept { version, training_step, unix_seconds, size_bytes, digest, elo, elo_low, elo_high, kept_by } = kept;
        let interval = elo_low.zip(*elo_high).map(|(low, high)| format!("{low:.0} to {high:.0}"));
        let rules: Vec<String> = kept_by.iter().map(|rule| format!("{rule:?}").to_lowercase()).collect();
        table.row([
            version.to_string(),
            training_step.to_string(),
            date(*unix_seconds as f64),
            format!("{:.1}", *size_bytes as f64 / 1e6),
            digest.to_string().chars().take(DIGEST_DIGITS).collect(),
            elo.map_or_else(|| MISSING.to_owned(), |elo| format!("{elo:.0}")),
            interval.unwrap_or_else(|| MISSING.to_owned()),
            rules.join(", "),
        ]);
    }
    Ok(write!(output, "{table}")?)
}

#[cfg(test)]
mod tests {
    use fleet::run_directory::RunDirectory;
    use games::GameKind;
    use version_store::Retention;

    use super::*;
    use crate::trained::tests::architecture;

    fn manifest(version: u64, bytes: &[u8]) -> Manifest {
        let architecture = architecture(&GameKind::TicTacToe);
        let (version, digest, size_bytes) = (WeightsVersion(version), Digest::of(bytes), bytes.len() as u64);
        Manifest { version, training_step: 10 * version.0, digest, size_bytes, architecture }
    }

    /// Creates a run that keeps versions 8 and 9 in `weights/`, and versions 2, 5 and 9 in `arena/`.
    fn run(runs: &Path) -> RunDirectory {
        let run = RunDirectory::new(runs, "noughts").unwrap();
        run.create().unwrap();
        let (newest, past) = (VersionStore::of_learner(run.path()), VersionStore::of_arena(run.path()));
        for (store, versions) in [(newest, &[8, 9][..]), (past, &[2, 5, 9])] {
            for &version in versions {
                let bytes = [version as u8];
                store.write(&manifest(version, &bytes), &bytes, Retention::All).unwrap();
            }
        }
        run
    }

    #[test]
    fn versions_are_found_in_both_folders_and_a_missing_one_is_an_error_that_lists_them() {
        let runs = tempfile::tempdir().unwrap();
        let kept = KeptVersions::of(&run(runs.path()));
        for version in [2, 5, 8, 9] {
            let (manifest, bytes) = kept.bytes(WeightsVersion(version)).unwrap();
            assert_eq!((manifest.version.0, bytes), (version, vec![version as u8]));
        }
        let error = kept.bytes(WeightsVersion(7)).unwrap_err().to_string();
        assert_eq!(error, "run noughts has no weights v7; kept versions are v2, v5, v8, v9");
    }

    #[test]
    fn the_list_names_the_rules_by_which_each_version_is_kept() {
        let runs = tempfile::tempdir().unwrap();
        let rated = |version, low| Rated {
            player: Player::Version(WeightsVersion(version)),
            elo: low + 100.0,
            low,
            high: low + 200.0,
            games: 8,
        };
        let kept = KeptVersions::of(&run(runs.path()));
        let ratings = [rated(2, 50.0), rated(5, 300.0), rated(8, 700.0)];
        let versions = kept.list(&ratings, 1, None).unwrap();
        let rules: Vec<(u64, Vec<Rule>)> = versions.iter().map(|kept| (kept.version.0, kept.kept_by.clone())).collect();
        let of_gate = kept.list(&ratings, 1, Some(WeightsVersion(2))).unwrap();
        assert_eq!(of_gate[0].kept_by, [Rule::Accepted]);
        let expected = [
            (2, vec![Rule::Spread]),
            (5, vec![Rule::Best]),
            (8, vec![Rule::Newest]),
            (9, vec![Rule::Newest, Rule::Spread]),
        ];
        assert_eq!(rules, expected);
        let mut text = Vec::new();
        write_table(&versions, &mut text).unwrap();
        let text = String::from_utf8(text).unwrap();
        let line = text.lines().find(|line| line.contains("v5")).unwrap();
        let digest = Digest::of(&[5]).to_string();
        for part in [" 50 ", &digest[..DIGEST_DIGITS], " 400 ", "300 to 500", "best"] {
            assert!(line.contains(part), "{part}: {text}");
        }
    }

    #[test]
    fn a_version_that_is_removed_while_versions_are_listed_is_left_out_and_a_damaged_one_is_an_error() {
        let runs = tempfile::tempdir().unwrap();
        let run = run(runs.path());
        let kept = KeptVersions::of(&run);
        fs::remove_file(kept.past.manifest_path(WeightsVersion(5))).unwrap();
        let versions = kept.list(&[], 1, None).unwrap();
        assert_eq!(versions.iter().map(|kept| kept.version.0).collect::<Vec<_>>(), [2, 8, 9]);
        fs::write(kept.newest.manifest_path(WeightsVersion(8)), "{").unwrap();
        let error = kept.list(&[], 1, None).unwrap_err().to_string();
        assert!(error.contains("v000008.json"), "{error}");
        assert_eq!(Kept::read(&kept.past, WeightsVersion(7), Rule::Best, &[]).unwrap(), None);
    }
}
