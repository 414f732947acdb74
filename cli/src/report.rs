//! Writes the report of a run from the files in the run's folder: a picture, and a summary of strength, throughput and
//! the division of time as Markdown, text and JSON.
//!
//! Every session ends with a report. [`again`] writes it again later, also for a session whose supervisor was
//! killed before it wrote one; `zerofleet picture` does so.

use std::fmt::Write as _;
use std::fs;
use std::io::{self, Write as _};
use std::path::PathBuf;

use anyhow::bail;
use serde::{Deserialize, Serialize};
use service::devices::CPU;
use service::directory::replace;

use crate::picture;
use crate::record;
use crate::run_metrics::{DeviceUse, RunMetrics, device_lines};
use crate::screen::{clock, elo, mean_return, number, percent, precise};
use fleet::config::{Fleet, load_run};
use fleet::run_directory::RunDirectory;

/// Draws the picture and writes the summary of a run again, from its recorded metrics.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct Args {
    /// Name of the run.
    #[arg(long, value_name = "NAME")]
    run: String,

    /// Folder of all runs.
    #[arg(long, value_name = "FOLDER", default_value = "runs")]
    runs: PathBuf,
}

impl Args {
    /// Draws the picture and prints the summary.
    pub(crate) fn run(self) -> anyhow::Result<()> {
        let run = RunDirectory::existing(&self.runs, &self.run)?;
        Ok(writeln!(io::stdout(), "{}", again(&run)?)?)
    }
}

/// Writes `summary.md`, `summary.json` and `picture.svg`. Returns the summary as text and the path of the picture, to
/// be printed. `restarts` holds the restarts of the session by process.
///
/// # Errors
/// The run has no metrics yet, or a file cannot be read or written.
pub(crate) fn write(run: &RunDirectory, restarts: Vec<(String, u32)>) -> anyhow::Result<String> {
    let config: Fleet = load_run(run)?;
    let readings = record::read(run)?;
    let Some(last) = readings.last().cloned() else {
        let name = run.name();
        bail!("run {name} has no metrics yet; train it with zerofleet train --run {name}");
    };
    let summary = Summary {
        run: run.name().to_owned(),
        game: config.run.game,
        seed: config.run.seed,
        minutes: config.learner.schedule_minutes,
        restarts,
        devices: DeviceUse::over(&readings),
        last,
    };
    replace(&run.path().join("summary.md"), summary.markdown().as_bytes())?;
    replace(&run.summary(), &serde_json::to_vec_pretty(&summary)?)?;
    let picture = run.path().join("picture.svg");
    picture::draw(&picture, &format!("zerofleet learns {}: run {}", summary.game, summary.run), &readings)?;
    Ok(format!("{}\npicture: {}", summary.plain(), picture.display()))
}

/// Writes the report of a run again, with the restarts from its last summary.
///
/// # Errors
/// As [`write`].
pub(crate) fn again(run: &RunDirectory) -> anyhow::Result<String> {
    // The restarts of a session that ended without a summary are unknown.
    let summary = fs::read(run.summary()).ok().and_then(|text| serde_json::from_slice::<Summary>(&text).ok());
    write(run, summary.unwrap_or_default().restarts)
}

/// The summary of a run.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Summary {
    /// The name of the run.
    pub run: String,
    /// The game.
    pub game: String,
    /// The seed of all random numbers.
    pub seed: u64,
    /// The planned length of the run in minutes.
    pub minutes: f64,
    /// Restarts in this session, by process.
    pub restarts: Vec<(String, u32)>,
    /// The devices of the run: means of rates and shares, and the most memory.
    pub devices: Vec<DeviceUse>,
    /// The last reading of the metrics.
    pub last: RunMetrics,
}

impl Summary {
    /// Formats the summary as Markdown.
    pub(crate) fn markdown(&self) -> String {
        let r = &self.last;
        let seconds = r.elapsed_seconds.max(1.0);
        let mean = |total: Option<f64>| number(total.map(|total| total / seconds));
        let mut text = String::new();
        let mut row = |name: &str, value: String| writeln!(text, "| {name} | {value} |").expect("strings grow");
        row("game, seed", format!("{}, {}", self.game, self.seed));
        row("trained", format!("{} of {}", clock(r.elapsed_seconds), clock(self.minutes * 60.0)));
        for (name, search) in [("raw policy", "raw"), ("with search", "search")] {
            // Not every game has solved positions.
            let Some(kept) = r.accuracy_of(search, "preserving") else { continue };
            let kept = percent(Some(kept));
            let best = percent(r.accuracy_of(search, "optimal"));
            row(&format!("solved positions, {name}"), format!("outcome kept {kept}, best move {best}"));
        }
        if r.has_returns() {
            row("mean return", mean_return(r));
            row("mean return of random play", number(r.random_return));
            row("steps of an evaluation episode", number(r.episode_length));
        } else {
            row("Elo (random play is 0)", elo(r));
        }
        for (name, rating) in &r.opponents {
            row(&format!("Elo of {name}"), format!("{rating:.0}"));
        }
        row("games", format!("{}, {} per second", number(r.games), mean(r.games)));
        row("positions", format!("{}, {} per second", number(r.positions), mean(r.positions)));
        row("evaluations", format!("{}, {} per second", number(r.evaluations), mean(r.evaluations)));
        row("simulations", format!("{}, {} per second", number(r.simulations), mean(r.simulations)));
        row("training steps", format!("{}, {} per second", number(r.steps), mean(r.steps)));
        let losses = [r.loss_total, r.loss_policy, r.loss_value].map(precise);
        row("loss", format!("{} = policy {} + value {}", losses[0], losses[1], losses[2]));
        row("replay", format!("{} items, window {}", number(r.replay_items), number(r.window_items)));
        for (role, engine) in &r.engines {
            row(&format!("engine of {role}"), engine.clone());
        }
        for line in device_lines(&self.devices) {
            row(if line == CPU { "device" } else { "device (mean load, most memory)" }, line);
        }
        for (role, share) in shares(r) {
            row(&format!("time of {role}"), share);
        }
        for (name, restarts) in self.restarts.iter().filter(|(_, restarts)| *restarts > 0) {
            row(&format!("restarts of {name}"), restarts.to_string());
        }
        format!("# Run {}\n\n| metric | value |\n|---|---|\n{text}", self.run)
    }

    /// Formats the same rows as plain text.
    pub(crate) fn plain(&self) -> String {
        let markdown = self.markdown();
        let rows = markdown.lines().skip(4).filter_map(|row| row.trim_matches('|').split_once('|'));
        let rows: Vec<(&str, &str)> = rows.map(|(name, value)| (name.trim(), value.trim())).collect();
        let width = rows.iter().map(|(name, _)| name.chars().count()).max().unwrap_or(0);
        rows.into_iter().map(|(name, value)| format!("  {name:<width$}  {value}\n")).collect()
    }
}

/// Returns the division of time of each role: `search 20 %, evaluate 75 %, wait 5 %`.
fn shares(r: &RunMetrics) -> Vec<(&'static str, String)> {
    let mut shares = Vec::new();
    for role in ["actor", "learner"] {
        let phases =
            r.seconds.iter().filter_map(|(key, seconds)| Some((key.strip_prefix(role)?.strip_prefix('/')?, *seconds)));
        let phases: Vec<_> = phases.collect();
        let all: f64 = phases.iter().map(|(_, seconds)| seconds).sum();
        if all > 0.0 {
            let parts = phases.iter().map(|(phase, seconds)| format!("{phase} {:.0} %", 100.0 * seconds / all));
            shares.push((role, parts.collect::<Vec<_>>().join(", ")));
        }
    }
    shares
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::path::Path;

    use super::*;
    use crate::record::Record;

    /// Creates a run of forty minutes of Hex that has written only its configuration.
    fn begin(runs: &Path) -> RunDirectory {
        let run = RunDirectory::new(runs, "first").unwrap();
        run.create().unwrap();
        let mut config = Fleet::default();
        (config.run.game, config.run.seed) = ("hex-5".to_owned(), 7);
        config.learner.schedule_minutes = 40.0;
        fs::write(run.config(), service::config::print(&config).unwrap()).unwrap();
        run
    }

    /// Returns metrics of ten minutes in which the loss falls to one.
    fn train(run: &RunDirectory) {
        let mut record = Record::open(run, 0.0).unwrap();
        for minute in 0..=10 {
            let loss_total = Some(2.0 - f64::from(minute) / 10.0);
            let elapsed_seconds = f64::from(60 * minute);
            record.append(&RunMetrics { elapsed_seconds, loss_total, ..RunMetrics::default() }).unwrap();
        }
    }

    fn written(run: &RunDirectory) -> Vec<String> {
        let names = ["summary.md", "summary.json", "picture.svg"];
        names.iter().map(|name| fs::read_to_string(run.path().join(name)).unwrap()).collect()
    }

    #[test]
    fn a_report_needs_only_metrics_and_configuration() {
        let runs = tempfile::tempdir().unwrap();
        let run = begin(runs.path());
        train(&run);
        again(&run).unwrap();
        let [summary, _, picture] = written(&run).try_into().unwrap();
        assert!(summary.contains("| game, seed | hex-5, 7 |"), "{summary}");
        assert!(summary.contains("| trained | 10:00 of 40:00 |"), "{summary}");
        assert!(summary.contains("| loss | 1.000"), "{summary}");
        assert!(picture.contains("zerofleet learns hex-5: run first") && picture.contains("1.20 total"), "{picture}");
    }

    #[test]
    fn a_device_is_reported_with_its_mean_load_and_its_most_memory() {
        let used = |busy: f64, bytes: f64| DeviceUse {
            device: "cuda".to_owned(),
            name: Some("NVIDIA H100".to_owned()),
            roles: ["actor".to_owned()].into(),
            busy_share: Some(busy),
            memory_held_bytes: Some(bytes),
            memory_bytes: Some(8e9),
            ..DeviceUse::default()
        };
        let cpu = DeviceUse { device: "cpu".to_owned(), ..DeviceUse::default() };
        let run = [vec![], vec![used(0.9, 4e9), cpu.clone()], vec![used(0.7, 2e9), cpu.clone()]];
        let readings = run.map(|devices| RunMetrics { devices, ..RunMetrics::default() });
        let lines = device_lines(&DeviceUse::over(&readings));
        assert_eq!(lines, ["cuda H100 (actor): busy 80 %, 4.0 of 8.0 GB", "cpu ()"]);
        let summary = Summary { devices: vec![cpu], ..summary(RunMetrics::default()) };
        assert_eq!(row(&summary, "device (mean load, most memory)").as_deref(), None, "a CPU has neither");
        assert_eq!(row(&summary, "device").unwrap(), "cpu");
    }

    #[test]
    fn a_repeated_report_is_identical_including_restarts() {
        let runs = tempfile::tempdir().unwrap();
        let run = begin(runs.path());
        train(&run);
        write(&run, vec![("learner".to_owned(), 2)]).unwrap();
        let before = written(&run);
        assert!(before[0].contains("| restarts of learner | 2 |"), "{}", before[0]);
        again(&run).unwrap();
        assert_eq!(written(&run), before);
    }

    #[test]
    fn a_line_cut_short_by_a_crash_is_skipped() {
        let runs = tempfile::tempdir().unwrap();
        let run = begin(runs.path());
        train(&run);
        let mut lines = fs::read(run.metrics()).unwrap();
        lines.extend(b"{\"elapsed_seconds\": 660.0, \"loss_to");
        fs::write(run.metrics(), lines).unwrap();
        let text = again(&run).unwrap();
        assert!(text.contains("10:00 of 40:00") && text.ends_with("picture.svg"), "{text}");
    }

    #[test]
    fn a_picture_of_an_unknown_run_is_an_error_that_lists_the_runs() {
        let runs = tempfile::tempdir().unwrap();
        let picture = Args { run: "second".to_owned(), runs: runs.path().to_owned() };
        let error = picture.run().unwrap_err().to_string();
        assert!(error.starts_with("no run second in") && error.ends_with("zerofleet train starts one"), "{error}");
    }

    #[test]
    fn a_run_without_metrics_is_an_error_with_a_remedy() {
        let runs = tempfile::tempdir().unwrap();
        let error = again(&begin(runs.path())).unwrap_err().to_string();
        assert_eq!(error, "run first has no metrics yet; train it with zerofleet train --run first");
    }

    /// Returns the summary of a run of two minutes with these metrics.
    fn summary(last: RunMetrics) -> Summary {
        Summary {
            run: "first".to_owned(),
            game: "connect_four".to_owned(),
            seed: 1,
            minutes: 2.0,
            restarts: vec![("actor-0".to_owned(), 0), ("learner".to_owned(), 3)],
            devices: Vec::new(),
            last: RunMetrics { elapsed_seconds: 60.0, ..last },
        }
    }

    /// Returns the value beside a name in the plain text; `None` without a row.
    fn row(summary: &Summary, name: &str) -> Option<String> {
        let text = summary.plain();
        let rows = text.lines().filter_map(|line| line.trim().strip_prefix(name)?.strip_prefix("  "));
        let mut rows = rows.map(|value| value.trim().to_owned());
        rows.next()
    }

    #[test]
    fn rates_are_those_of_the_whole_run() {
        let summary = summary(RunMetrics { games: Some(120.0), games_per_second: Some(99.0), ..RunMetrics::default() });
        assert_eq!(row(&summary, "games").unwrap(), "120, 2.0 per second");
        assert_eq!(row(&summary, "trained").unwrap(), "1:00 of 2:00");
    }

    #[test]
    fn the_time_of_a_role_is_divided_among_its_own_phases() {
        let seconds = [("actor/search", 20.0), ("actor/wait", 60.0), ("learner/train", 1.0), ("learner/wait", 3.0)];
        let seconds = seconds.map(|(key, seconds)| (key.to_owned(), seconds));
        let summary = summary(RunMetrics { seconds: BTreeMap::from(seconds), ..RunMetrics::default() });
        assert_eq!(row(&summary, "time of actor").unwrap(), "search 25 %, wait 75 %");
        assert_eq!(row(&summary, "time of learner").unwrap(), "train 25 %, wait 75 %");
    }

    #[test]
    fn unknown_values_have_no_row_or_are_shown_as_missing() {
        let summary = summary(RunMetrics::default());
        assert_eq!(row(&summary, "solved positions, raw policy"), None);
        assert_eq!(row(&summary, "time of actor"), None);
        assert_eq!(row(&summary, "loss").unwrap(), "– = policy – + value –");
    }

    #[test]
    fn games_scored_by_rewards_have_a_mean_return_in_place_of_elo() {
        let returns = RunMetrics {
            return_mean: Some(487.25),
            return_low: Some(470.0),
            return_high: Some(504.5),
            random_return: Some(22.4),
            episode_length: Some(487.25),
            ..RunMetrics::default()
        };
        let summary = summary(returns);
        assert_eq!(row(&summary, "mean return").unwrap(), "487 (470 to 504)");
        assert_eq!(row(&summary, "mean return of random play").unwrap(), "22.4");
        assert_eq!(row(&summary, "Elo (random play is 0)"), None);
    }

    #[test]
    fn only_processes_with_restarts_are_listed() {
        let summary = summary(RunMetrics::default());
        assert_eq!(
            (row(&summary, "restarts of learner").as_deref(), row(&summary, "restarts of actor-0")),
            (Some("3"), None)
        );
    }

    #[test]
    fn the_screen_shows_every_row_of_the_file() {
        let accuracy = BTreeMap::from([("raw/preserving/overall".to_owned(), 0.75)]);
        let summary = summary(RunMetrics { accuracy, elo: Some(812.0), ..RunMetrics::default() });
        let rows = summary.markdown().lines().skip(4).count();
        assert_eq!(summary.plain().lines().count(), rows);
        assert_eq!(row(&summary, "solved positions, raw policy").unwrap(), "outcome kept 75.0 %, best move –");
    }
}
