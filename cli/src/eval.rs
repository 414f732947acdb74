//! `zerofleet eval`: measures accuracy on solved positions, with search and without.
//!
//! The caller passes the evaluator, the rules and the text of the positions; [`arena::solved`] defines the measures.
//! Start with [`run`].

use std::io::{self, Write};

use arena::solved::{self, Accuracy, SolvedPosition, Tally};
use game::{Action, Game};
use inference::Evaluator;
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;
use selfplay::{AnalysisSettings, SearchSettings, analyse};
use serde::Serialize;

/// The settings of one measurement.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Simulations per position; 0 measures only the raw policy.
    pub simulations: u32,
    /// The search settings.
    pub search: SearchSettings,
    /// Number of positions evaluated together.
    pub batch: usize,
    /// The seed of random choices in the search.
    pub seed: u64,
}

/// Default number of positions evaluated together; it fills a batch on a CPU.
pub const BATCH: usize = 256;

impl Settings {
    /// Returns the default settings with this many simulations.
    #[must_use]
    pub fn new(simulations: u32) -> Self {
        Self { simulations, search: SearchSettings::default(), batch: BATCH, seed: 0 }
    }

    fn analysis(&self, simulations: u32) -> AnalysisSettings {
        AnalysisSettings { simulations, search: self.search.clone(), leaves_per_tree: 1, batch: self.batch }
    }
}

/// The output format.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// A text table.
    Table,
    /// One JSON object.
    Json,
}

/// The result of one measurement.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Report {
    /// The game.
    pub game: String,
    /// The source of the positions.
    pub positions: String,
    /// The name of the evaluator.
    pub evaluator: String,
    /// The weights version.
    pub weights_version: u64,
    /// Simulations per position.
    pub simulations: u32,
    /// Accuracy of the moves chosen by search; absent with 0 simulations.
    pub with_search: Option<Accuracy>,
    /// Accuracy of the raw policy.
    pub without_search: Accuracy,
}

/// The reason for a failed measurement.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The file of positions is invalid.
    #[error(transparent)]
    Positions(#[from] solved::Error),
    /// The evaluator failed.
    #[error("evaluate the positions")]
    Evaluator(#[from] inference::Error),
    /// The report could not be written.
    #[error("write the report")]
    Output(#[from] io::Error),
}

/// Parses solved positions from the `text` of `file`, measures the evaluator's moves and writes the report.
///
/// # Errors
/// [`Error`] names the cause: the file, the evaluator or the output.
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

/// Measures the evaluator's moves in `positions`, with search and without.
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
        // Both accuracies cover the same positions in the same order, so their bands correspond.
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

#[cfg(test)]
mod tests {
    use games::ConnectFour;
    use inference::Wdl;
    use inference::testing::{Fault, Faulty, Scripted, Uniform};

    use super::*;

    /// Two positions: only column 4 keeps the win in the first, and every column but the first loses in the second.
    const POSITIONS: &str = "\
moves,band,c1,c2,c3,c4,c5,c6,c7
12,early,-1,-1,-1,5,-1,-1,-1
1122,late,0,-2,-2,-2,-2,-2,-2
";

    /// Returns an evaluator that prefers the fourth column.
    fn prefers_the_fourth_column() -> impl Evaluator {
        Scripted::new(ConnectFour::new().spec().observation, 7, |_: &[f32], legal: &[Action], priors: &mut [f32]| {
            for (action, prior) in legal.iter().zip(priors) {
                *prior = if action.0 == 3 { 0.4 } else { 0.1 };
            }
            Wdl::EVEN
        })
    }

    fn eval(
        text: &str,
        simulations: u32,
        format: Format,
        evaluator: &mut dyn Evaluator,
    ) -> (Result<Report, Error>, String) {
        let mut output = Vec::new();
        let game = ConnectFour::new();
        let report = run(&game, "some.csv", text, &Settings::new(simulations), evaluator, format, &mut output);
        (report, String::from_utf8(output).unwrap())
    }

    #[test]
    fn without_simulations_the_likeliest_move_is_judged() {
        let (_, table) = eval(POSITIONS, 0, Format::Table, &mut prefers_the_fourth_column());
        assert_eq!(
            table.lines().map(str::trim_end).collect::<Vec<_>>(),
            [
                "connect_four, weights version 7 (scripted), positions of some.csv",
                "",
                "                            raw policy",
                "band       positions   keeps outcome optimal",
                "early              1         100.0 % 100.0 %",
                "late               1           0.0 %   0.0 %",
                "all                2          50.0 %  50.0 %",
            ]
        );
    }

    #[test]
    fn with_simulations_both_are_reported() {
        let (report, table) = eval(POSITIONS, 16, Format::Table, &mut prefers_the_fourth_column());
        let report = report.unwrap();
        assert_eq!(report.with_search.unwrap().overall.positions, 2);
        assert_eq!(report.without_search.overall.outcome_preserving, 1);
        assert!(table.contains("16 simulations") && table.contains("raw policy"), "{table}");
    }

    #[test]
    fn json_holds_the_same_by_band_and_overall() {
        let (report, json) = eval(POSITIONS, 0, Format::Json, &mut prefers_the_fourth_column());
        let json: serde_json::Value = serde_json::from_str(&json).unwrap();
        assert_eq!(json["game"], "connect_four");
        assert_eq!(json["weights_version"], 7);
        assert_eq!(json["with_search"], serde_json::Value::Null);
        assert_eq!(json["without_search"]["overall"]["outcome_preserving_share"], 0.5);
        assert_eq!(json["without_search"]["bands"][1]["band"], "late");
        assert_eq!(json, serde_json::to_value(report.unwrap()).unwrap());
    }

    /// A search with a uniform evaluator finds an immediate win.
    #[test]
    fn a_search_finds_what_the_raw_policy_does_not() {
        let text = "moves,band,c1,c2,c3,c4,c5,c6,c7\n727272,mate,-1,-1,-1,-1,-1,-1,18\n";
        let mut evaluator = Uniform::new(ConnectFour::new().spec().observation);
        let report = eval(text, 64, Format::Table, &mut evaluator).0.unwrap();
        assert_eq!(report.with_search.unwrap().overall.optimal, 1);
        assert_eq!(report.without_search.overall.optimal, 0);
    }

    #[test]
    fn errors_name_their_cause() {
        let game = ConnectFour::new();
        let mut uniform = Uniform::new(game.spec().observation);
        let error = eval("moves\n", 0, Format::Table, &mut uniform).0.unwrap_err();
        assert!(error.to_string().starts_with("some.csv, line 1: the header is `moves`"), "{error}");
        let mut faulty = Faulty::new(game.spec().observation, Fault::Backend, 0);
        let error = eval(POSITIONS, 0, Format::Table, &mut faulty).0.unwrap_err();
        assert!(matches!(error, Error::Evaluator(inference::Error::Backend(_))), "{error}");
    }
}
