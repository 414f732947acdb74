//! Runs an ablation as processes, and measures the final weights of each run.

use std::collections::BTreeMap;
use std::fs;
use std::thread::{Builder, JoinHandle};

use anyhow::{Context as _, anyhow};
use fleet::RunDirectory;
use strength::solved::Accuracy;

use super::rows::Row;
use super::schedule::Laboratory;
use super::study::Eval;
use crate::report::{Origin, Summary};
use crate::tune::{Runner, TrialRuns};
use crate::{eval, trained};

/// A laboratory that starts runs with [`TrialRuns`]. Each measurement runs in a separate thread, so that another run
/// can be stopped at the same time.
#[derive(Debug)]
pub(super) struct Processes {
    runs: TrialRuns,
    eval: Option<Eval>,
    here: [String; 2],
    measuring: BTreeMap<usize, JoinHandle<anyhow::Result<Row>>>,
}

impl Processes {
    /// Creates a laboratory that measures the final weights of each run with `eval`; `None` measures no accuracy.
    pub(super) fn new(runs: TrialRuns, eval: Option<Eval>) -> Self {
        let Origin { processor, commit, .. } = Origin::here(std::env::args_os());
        Self { runs, eval, here: [processor, commit], measuring: BTreeMap::new() }
    }
}

impl Laboratory for Processes {
    fn runner(&mut self) -> &mut dyn Runner {
        &mut self.runs
    }

    fn here(&self) -> [String; 2] {
        self.here.clone()
    }

    fn clear(&mut self, run: usize) -> anyhow::Result<()> {
        self.runs.clear(run)
    }

    fn measured(&mut self, run: usize) -> Option<anyhow::Result<Row>> {
        let (directory, eval) = (self.runs.run(run), self.eval.clone());
        let begin = || Builder::new().name("measure".to_owned()).spawn(move || row(&directory?, eval));
        let measuring = match self.measuring.remove(&run).map_or_else(begin, Ok) {
            Ok(measuring) => measuring,
            Err(error) => return Some(Err(error).context("start a thread")),
        };
        if !measuring.is_finished() {
            self.measuring.insert(run, measuring);
            return None;
        }
        Some(measuring.join().unwrap_or_else(|_| Err(anyhow!("the thread panicked"))))
    }
}

/// Returns the row of a finished run, except for the columns that identify the run.
fn row(run: &RunDirectory, eval: Option<Eval>) -> anyhow::Result<Row> {
    let named = || format!("read {}", run.summary().display());
    let bytes = fs::read(run.summary()).with_context(named)?;
    let Summary { origin, date, last, .. } = serde_json::from_slice(&bytes).with_context(named)?;
    let counted = [("positions", last.positions), ("steps", last.steps), ("games", last.games)];
    let counted = counted.into_iter().filter_map(|(column, value)| Some((column.to_owned(), value?.to_string())));
    let described = [
        ("machine", origin.processor),
        ("cores", origin.cores.to_string()),
        ("commit", origin.commit),
        ("date", date),
        ("minutes", (last.elapsed_seconds / 60.0).to_string()),
    ];
    let described = described.into_iter().map(|(column, value)| (column.to_owned(), value));
    // Drops accuracies from the arena, since the measured versions and positions depend on the arena's CPU share.
    let scalars = last.scalars().into_iter().filter(|(name, _)| !name.starts_with("accuracy/"));
    let mut row = Row(described.chain(counted).chain(scalars.map(|(name, value)| (name, value.to_string()))).collect());
    if let Some(Eval { positions, simulations }) = eval {
        let runs = run.path().parent().context("find the run directory")?.to_owned();
        let report = eval::accuracy(trained::Args::newest(runs, run.name()), positions, simulations)?;
        insert(&mut row, "raw", &report.without_search);
        report.with_search.iter().for_each(|accuracy| insert(&mut row, "search", accuracy));
    }
    Ok(row)
}

fn insert(row: &mut Row, search: &str, accuracy: &Accuracy) {
    let bands = accuracy.bands.iter().map(|band| (band.band.as_str(), &band.tally));
    for (band, tally) in bands.chain([("overall", &accuracy.overall)]) {
        let measures = [
            ("optimal", Some(tally.optimal_share())),
            ("preserving", Some(tally.outcome_preserving_share())),
            ("value_error", tally.value_error()),
        ];
        let column = |(measure, value): (&str, Option<f64>)| {
            Some((format!("accuracy/{search}/{measure}/{band}"), value?.to_string()))
        };
        row.0.extend(measures.into_iter().filter_map(column));
    }
}
