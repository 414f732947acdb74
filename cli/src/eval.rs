//! `zerofleet eval`: how well weights play solved positions, with search and without.
//!
//! The caller brings the evaluator, the rules and the file's text; what is judged and how is [`arena::solved`]'s. Start
//! with [`run`].

#[cfg(test)]
mod tests;

use std::io::{self, Write};

use arena::solved::{self, Accuracy, SolvedPosition, Tally};
use game::{Action, Game};
use inference::Evaluator;
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;
use selfplay::{AnalysisSettings, SearchSettings, analyse};
use serde::Serialize;

/// What to measure.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Simulations for each position; 0 measures the raw policy alone.
    pub simulations: u32,
    /// How the trees search.
    pub search: SearchSettings,
    /// Positions under evaluation together.
    pub batch: usize,
    /// Where random choices come from, should the search make any.
    pub seed: u64,
}

/// Positions under evaluation together unless something else is asked for: what fills a batch on a CPU.
pub const BATCH: usize = 256;

impl Settings {
    /// The usual search with this many simulations.
    #[must_use]
    pub fn new(simulations: u32) -> Self {
        Self { simulations, search: SearchSettings::default(), batch: BATCH, seed: 0 }
    }

    fn analysis(&self, simulations: u32) -> AnalysisSettings {
        AnalysisSettings { simulations, search: self.search.clone(), leaves_per_tree: 1, batch: self.batch }
    }
}

/// The form of what is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// A table for people.
    Table,
    /// One JSON object.
    Json,
}

/// What was measured.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Report {
    /// The game.
    pub game: String,
    /// Where the positions came from.
    pub positions: String,
    /// What evaluated.
    pub evaluator: String,
    /// The version of its weights.
    pub weights_version: u64,
    /// Simulations for each position.
    pub simulations: u32,
    /// The moves a search chose; absent with 0 simulations.
    pub with_search: Option<Accuracy>,
    /// The likeliest moves of the raw policy.
    pub without_search: Accuracy,
}

/// Why nothing was measured.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The file of positions is wrong.
    #[error(transparent)]
    Positions(#[from] solved::Error),
    /// The evaluator failed.
    #[error("evaluate the positions")]
    Evaluator(#[from] inference::Error),
    /// The report could not be written.
    #[error("write the report")]
    Output(#[from] io::Error),
}

/// Reads solved positions from the `text` of `file`, judges the evaluator's moves and writes the report.
///
/// # Errors
/// [`Error`] says whether the file, the evaluator or the output is at fault.
pub fn run<G: Game>(
    game: &G,
    file: &str,
    text: &str,
    settings: &Settings,
    evaluator: &mut dyn Evaluator,
    format: Format,
    output: &mut impl Write,
) -> Result<Report, Error> {
    let positions = solved::parse(game, file, text)?;
    let report = measure(game, file, &positions, settings, evaluator)?;
    match format {
        Format::Table => write_table(&report, output)?,
        Format::Json => {
            serde_json::to_writer_pretty(&mut *output, &report).map_err(io::Error::from)?;
            writeln!(output)?;
        }
    }
    output.flush()?;
    Ok(report)
}

/// Judges the evaluator's moves in `positions`, with search and without.
///
/// # Errors
/// Those of the evaluator.
pub fn measure<G: Game>(
    game: &G,
    file: &str,
    positions: &[SolvedPosition],
    settings: &Settings,
    evaluator: &mut dyn Evaluator,
) -> Result<Report, inference::Error> {
    let boards: Vec<G::Position> = positions.iter().map(|position| position.position(game)).collect();
    let mut accuracy = |simulations| -> Result<Accuracy, inference::Error> {
        let mut rng = ChaCha8Rng::seed_from_u64(settings.seed);
        let analyses = analyse(game, &boards, &settings.analysis(simulations), evaluator, &mut rng)?;
        let chosen: Vec<Action> = analyses.iter().map(|analysis| analysis.best).collect();
        Ok(Accuracy::of(positions, chosen))
    };
    let without_search = accuracy(0)?;
    let with_search = if settings.simulations > 0 { Some(accuracy(settings.simulations)?) } else { None };
    let attributes = evaluator.attributes();
    Ok(Report {
        game: game.spec().name.clone(),
        positions: file.into(),
        evaluator: attributes.name.to_string(),
        weights_version: attributes.weights_version,
        simulations: settings.simulations,
        with_search,
        without_search,
    })
}

fn write_table(report: &Report, output: &mut impl Write) -> io::Result<()> {
    let Report { game, positions, evaluator, weights_version, simulations, with_search, without_search } = report;
    writeln!(output, "{game}, weights version {weights_version} ({evaluator}), positions of {positions}")?;
    writeln!(output)?;
    let searched = format!("{simulations} simulations");
    let title = if with_search.is_some() { searched.as_str() } else { "" };
    writeln!(output, "{:<10} {:>9}   {:^20}   {title:^20}", "", "", "raw policy")?;
    let heads = "keeps outcome optimal";
    let heads_searched = if with_search.is_some() { heads } else { "" };
    writeln!(output, "{:<10} {:>9}   {heads:<21}  {heads_searched}", "band", "positions")?;
    for (index, band) in without_search.bands.iter().enumerate() {
        // Both accuracies were made from the same positions in the same order, so their bands correspond.
        let searched = with_search.as_ref().and_then(|accuracy| accuracy.bands.get(index));
        write_row(output, band.band.name(), &band.tally, searched.map(|band| &band.tally))?;
    }
    write_row(output, "all", &without_search.overall, with_search.as_ref().map(|accuracy| &accuracy.overall))
}

fn write_row(output: &mut impl Write, name: &str, raw: &Tally, searched: Option<&Tally>) -> io::Result<()> {
    write!(output, "{name:<10} {:>9}   {}", raw.positions, shares(raw))?;
    match searched {
        Some(searched) => writeln!(output, "  {}", shares(searched)),
        None => writeln!(output),
    }
}

fn shares(tally: &Tally) -> String {
    let (preserving, optimal) = (100.0 * tally.outcome_preserving_share(), 100.0 * tally.optimal_share());
    format!("{preserving:>11.1} % {optimal:>5.1} %")
}
