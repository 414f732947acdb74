//! The card of a model: a description for people, below a header for hubs.

use std::fmt::Write as _;

use figures::table::Table;
use serde_json::json;
use service::config::Compared;
use strength::ledger::Rated;
use weights::{Manifest, Model};

use crate::report::Summary;
use crate::screen::{clock, number};

/// Contents of a card.
pub(crate) struct Card<'a> {
    /// Name of the run.
    pub(crate) run: &'a str,
    pub(crate) manifest: &'a Manifest,
    /// Summary of the last session; the default if there is none.
    pub(crate) summary: &'a Summary,
    /// Rating of this version by the arena.
    pub(crate) rated: Option<&'a Rated>,
    /// Keys of the run file with another value than in the preset.
    pub(crate) differences: &'a [Compared],
    /// Names of the files with models of ONNX.
    pub(crate) models: &'a [&'a str],
    /// License of the weights.
    pub(crate) license: &'a str,
}

/// A measured strength.
struct Measure {
    /// Identifier in the header; `None` outside the header if the measured version may be another one.
    kind: Option<&'static str>,
    value: f64,
    /// Meaning, with interval and reference.
    meaning: String,
}

impl Card<'_> {
    /// Formats the card as Markdown with a header in YAML.
    pub(crate) fn markdown(&self) -> String {
        let Self { run, manifest, license, .. } = self;
        let measures = self.measures();
        let strength =
            measures.iter().map(|Measure { value, meaning, .. }| format!("- {meaning}: {}\n", number(Some(*value))));
        let strength: String = strength.collect();
        let strength = if strength.is_empty() { "The run has not measured this version.\n" } else { &strength };
        format!(
            "---\n{}---\n\n# {} {} of run {run}\n\n{}\n## Use\n\n{}\n## Strength\n\n{strength}\n## Training\n\n{}\n\
             {}\n## License\n\nLicense of the weights: `{license}`.\n",
            self.header(&measures),
            manifest.architecture.game,
            manifest.version,
            self.network(),
            self.usage(),
            self.training().markdown(),
            self.settings(),
        )
    }

    /// Returns the measurements: those for this version, and with a remark those for the latest measured version.
    fn measures(&self) -> Vec<Measure> {
        let last = &self.summary.last;
        let mut measures = Vec::new();
        if let Some(&Rated { elo, low, high, games, .. }) = self.rated {
            let meaning =
                format!("Elo over uniformly random play at 0, 95 % interval {low:.0} to {high:.0}, from {games} games");
            measures.push(Measure { kind: Some("elo"), value: elo, meaning });
        }
        let latest = "by the latest version that the run measured";
        for (search, words) in [("raw", "raw policy"), ("search", "with search")] {
            for (measure, share) in [("preserving", "outcome kept"), ("optimal", "best move")] {
                let Some(value) = last.accuracy_of(search, measure) else { continue };
                let meaning = format!("Share of solved positions, {words}, {share}, {latest}");
                measures.push(Measure { kind: None, value, meaning });
            }
        }
        if let Some(value) = last.return_mean {
            let [low, high, random] = [last.return_low, last.return_high, last.random_return].map(number);
            let meaning =
                format!("Mean return, 95 % interval {low} to {high}, {latest}; uniformly random play has {random}");
            measures.push(Measure { kind: None, value, meaning });
        }
        measures
    }

    /// Returns the header, in which strings are written as in JSON.
    fn header(&self, measures: &[Measure]) -> String {
        let game = &self.manifest.architecture.game;
        let algorithm = match self.manifest.architecture.model {
            Model::Alphazero | Model::AlphazeroReturns { .. } => "alphazero",
            Model::Muzero { .. } => "muzero",
            Model::StochasticMuzero { .. } => "stochastic-muzero",
        };
        let metrics: Vec<_> = measures
            .iter()
            .filter_map(|Measure { kind, value, meaning }| {
                kind.map(|kind| json!({ "type": kind, "value": value, "name": meaning }))
            })
            .collect();
        let results = json!([{
            "task": { "type": "reinforcement-learning", "name": "reinforcement-learning" },
            "dataset": { "type": game, "name": game },
            "metrics": metrics,
        }]);
        let mut header = String::new();
        for (key, value) in [
            ("library_name", json!("zerofleet")),
            ("pipeline_tag", json!("reinforcement-learning")),
            ("tags", json!([game, algorithm])),
            ("license", json!(self.license)),
        ] {
            writeln!(header, "{key}: {value}").expect("strings grow");
        }
        if !metrics.is_empty() {
            let index = json!([{ "name": format!("{} {}", self.run, self.manifest.version), "results": results }]);
            writeln!(header, "model-index: {index}").expect("strings grow");
        }
        header
    }

    fn network(&self) -> String {
        let Manifest { architecture, training_step, digest, .. } = self.manifest;
        format!(
            "A network for `{}` with {} blocks of {} channels, trained by zerofleet for {training_step} steps. \
             BLAKE3 digest of the weights: `{digest}`.\n",
            architecture.game, architecture.blocks, architecture.channels,
        )
    }

    fn usage(&self) -> String {
        let mut text = "```sh\nzerofleet play --weights DIR\n```\n\n```python\nimport zerofleet\n\n\
                        network = zerofleet.Network.load(\"DIR\")\n```\n"
            .to_owned();
        if !self.models.is_empty() {
            let files = self.models.iter().map(|file| format!("`{file}`")).collect::<Vec<_>>().join(", ");
            writeln!(text, "\nModels of ONNX (operator set 17) for other runtimes: {files}.").expect("strings grow");
        }
        text
    }

    fn training(&self) -> Table {
        let Summary { seed, origin, last, .. } = self.summary;
        let mut table = Table::default().words(["", "training"]);
        let mut row = |name: &str, value: String| table.row([name.to_owned(), value]);
        row("weights version, training step", format!("{}, {}", self.manifest.version, self.manifest.training_step));
        // A run without a summary has the default, which describes no session.
        if last.elapsed_seconds > 0.0 {
            row("training time of the run", clock(last.elapsed_seconds));
            row("seed", seed.to_string());
        }
        if origin.cores > 0 {
            row("processor", format!("{}, {} cores", origin.processor, origin.cores));
            row("commit of the program", origin.commit.clone());
        }
        if !origin.gpus.is_empty() {
            row("GPUs", origin.gpus.join(", "));
        }
        table
    }

    fn settings(&self) -> String {
        if self.differences.is_empty() {
            return "Every setting has the value of the preset of the game.\n".to_owned();
        }
        let mut table = Table::default().words(["setting", "value", "preset"]);
        for Compared { section, key, value, other } in self.differences {
            table.row([format!("{section}.{key}"), value.clone(), other.clone().unwrap_or_default()]);
        }
        format!("Settings with another value than in the preset of the game:\n\n{}", table.markdown())
    }
}
