//! Searches positions for visitors of the web console, with the networks of a run. Start with [`ConsoleThinker::new`].

use std::fmt;
use std::ops::ControlFlow::{self, Continue};
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use fleet::RunDirectory;
use game::Game as _;
use games::GameKind;
use selfplay::Analysis;
use version_store::VersionStore;
use web_console::{Opinion, Question, Thinker};
use weights::WeightsVersion;

use crate::play::analyse;
use crate::trained::{self, Networks, Trained};

/// Maximum number of simulations, which bounds time and memory.
const SIMULATIONS_MAX: u32 = 10_000;
/// Maximum number of simulations in a learned model, which has a latent state for each and cannot be stopped.
const LATENT_SIMULATIONS_MAX: u32 = 1_000;
/// Minimum time between two reports of a search.
const REPORT_INTERVAL: Duration = Duration::from_millis(200);
/// Number of cores for each thread that searches; training has the rest.
const CORES_PER_THREAD: usize = 4;

/// Searches with the kept weights of a run, or on an inference server.
pub(crate) struct ConsoleThinker {
    run: RunDirectory,
    /// The engine of this process, or an inference server.
    options: trained::Options,
    /// At most two networks: one of the latest version, and the last one that searched. The lock is held during a
    /// search, because the console has one search at a time.
    loaded: Mutex<Vec<Loaded>>,
}

/// A network of a version; `None` if an inference server chooses the version.
struct Loaded {
    version: Option<WeightsVersion>,
    trained: Trained,
}

impl fmt::Debug for ConsoleThinker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ConsoleThinker").field("options", &self.options).finish_non_exhaustive()
    }
}

impl ConsoleThinker {
    /// Creates a thinker for a run, which evaluates on the server `inference`, if given.
    pub(crate) fn new(run: RunDirectory, inference: Option<String>) -> Self {
        let trained::Args { options, .. } = trained::Args::newest(PathBuf::new(), run.name());
        Self { run, options: trained::Options { inference, ..options }, loaded: Mutex::default() }
    }

    /// Removes the network for a question from `loaded`, or loads it. At most one network is left.
    fn take(&self, loaded: &mut Vec<Loaded>, question: &Question) -> anyhow::Result<Loaded> {
        let kept = VersionStore::kept(self.run.path())?;
        let latest = kept.into_keys().next_back().filter(|_| self.options.inference.is_none());
        let version = question.version.or(latest);
        let is_wanted = |each: &Loaded| each.version == version && each.trained.game == question.game;
        if let Some(index) = loaded.iter().position(is_wanted) {
            return Ok(loaded.swap_remove(index));
        }
        loaded.retain(|each| each.version == latest);
        loaded.truncate(1);
        let options = trained::Options { game: Some(question.game.clone()), ..self.options.clone() };
        let threads = (service::machine::cores() / CORES_PER_THREAD).max(1);
        Ok(Loaded { version, trained: Trained::of_run(&self.run, version, &options, threads)? })
    }
}

impl Thinker for ConsoleThinker {
    fn think(
        &self,
        question: &Question,
        progress: &mut dyn FnMut(&Analysis) -> ControlFlow<()>,
    ) -> anyhow::Result<Opinion> {
        let Question { game, seed, actions, .. } = question;
        ensure!(!matches!(game, GameKind::Recorded(_)), "{game} runs outside this program and cannot be searched");
        let rules = game.rules();
        let position = rules.replay_from(*seed, actions).context("replay the game")?;
        ensure!(rules.outcome(&position).is_none(), "the game is over");
        let mut loaded = self.loaded.lock().unwrap_or_else(PoisonError::into_inner);
        // After a failure the network is not kept, so that the next search connects again to a server that was lost.
        let mut taken = self.take(&mut loaded, question)?;
        let Trained { networks, search, discount, .. } = &mut taken.trained;
        let is_latent = matches!(networks, Networks::Latent(_));
        let simulations = question.simulations.min(if is_latent { LATENT_SIMULATIONS_MAX } else { SIMULATIONS_MAX });
        let mut report_at = Instant::now();
        let analysis = analyse(&rules, &position, simulations, search, *discount, networks, &mut |so_far, _| {
            let now = Instant::now();
            if now < report_at {
                return Continue(());
            }
            report_at = now + REPORT_INTERVAL;
            progress(&so_far())
        })?;
        let version = WeightsVersion(networks.attributes().weights_version);
        loaded.push(taken);
        Ok(Opinion { analysis, version })
    }

    fn is_remote(&self) -> bool {
        self.options.inference.is_some()
    }
}

#[cfg(test)]
mod tests {
    use std::ops::ControlFlow::Break;
    use std::path::Path;

    use game::Action;
    use weights::{Architecture, Design, HeadKind, Model};

    use super::*;
    use crate::trained::tests::{architecture, begin_with, publish};

    fn question(game: &str, actions: &[u16], simulations: u32) -> Question {
        let actions = actions.iter().copied().map(Action).collect();
        Question { game: game.parse().unwrap(), seed: 0, actions, version: None, simulations }
    }

    fn think(thinker: &ConsoleThinker, question: &Question) -> Result<Opinion, String> {
        thinker.think(question, &mut |_| Continue(())).map_err(|error| service::chain(&error))
    }

    /// Returns the thinker of a run of `game`, and publishes versions 1 and 2 with this model and these heads.
    fn thinker(runs: &Path, game: &str, model: Model, heads: HeadKind) -> ConsoleThinker {
        let run = begin_with(runs, game);
        let of_run = architecture(&game.parse().unwrap());
        for version in [1, 2] {
            let design = Design { heads, ..of_run.design };
            publish(&run, Architecture { model, design, ..of_run.clone() }, version);
        }
        ConsoleThinker::new(run, None)
    }

    fn versions(thinker: &ConsoleThinker) -> Vec<u64> {
        thinker.loaded.lock().unwrap().iter().map(|loaded| loaded.version.unwrap().0).collect()
    }

    #[test]
    fn the_same_question_has_the_same_answer_and_a_search_can_be_ended() {
        let runs = tempfile::tempdir().unwrap();
        let thinker = thinker(runs.path(), "tic_tac_toe", Model::Alphazero, HeadKind::Flattened);
        for simulations in [0, 50, u32::MAX] {
            let question = question("tic_tac_toe", &[4, 0, 2], simulations);
            let [first, second] = [(); 2].map(|()| think(&thinker, &question).unwrap());
            assert_eq!((first.version, &first.analysis), (WeightsVersion(2), &second.analysis));
            assert_eq!(first.analysis.actions.len(), 6);
            let visits: u32 = first.analysis.visit_counts.iter().sum();
            assert!(visits <= simulations.min(SIMULATIONS_MAX), "{visits} visits");
        }
        let (mut reports, question) = (0, question("tic_tac_toe", &[], 200));
        let mut stop = |_: &Analysis| {
            reports += 1;
            Break(())
        };
        let visits: u32 = thinker.think(&question, &mut stop).unwrap().analysis.visit_counts.iter().sum();
        assert!(reports == 1 && visits < 200, "{reports} reports, {visits} visits");
    }

    #[test]
    fn a_later_version_is_noticed_and_at_most_two_networks_are_kept() {
        let runs = tempfile::tempdir().unwrap();
        let thinker = thinker(runs.path(), "tic_tac_toe", Model::Alphazero, HeadKind::Flattened);
        let latest = question("tic_tac_toe", &[], 0);
        let of = |version| Question { version: Some(WeightsVersion(version)), ..latest.clone() };
        assert_eq!(think(&thinker, &latest).unwrap().version, WeightsVersion(2));
        assert_eq!(think(&thinker, &of(1)).unwrap().version, WeightsVersion(1));
        assert_eq!(versions(&thinker), [2, 1]);
        publish(&thinker.run, architecture(&GameKind::TicTacToe), 3);
        assert_eq!(think(&thinker, &latest).unwrap().version, WeightsVersion(3));
        assert_eq!(think(&thinker, &of(1)).unwrap().version, WeightsVersion(1));
        assert_eq!(think(&thinker, &of(2)).unwrap().version, WeightsVersion(2));
        assert_eq!(versions(&thinker), [3, 2]);
        let error = think(&thinker, &of(7)).unwrap_err();
        assert_eq!(error, "run noughts has no weights v7; kept versions are v1, v2, v3");
    }

    #[test]
    fn other_boards_of_pooled_heads_and_learned_models_are_searched() {
        let runs = [(); 2].map(|()| tempfile::tempdir().unwrap());
        let pooled = thinker(runs[0].path(), "hex-5", Model::Alphazero, HeadKind::Pooled);
        for (game, actions) in [("hex-5", 25), ("hex-4", 16)] {
            assert_eq!(think(&pooled, &question(game, &[], 8)).unwrap().analysis.actions.len(), actions, "{game}");
        }
        let error = think(&pooled, &question("go-5", &[], 0)).unwrap_err();
        assert!(error.contains("not for go-5"), "{error}");
        let learned = thinker(runs[1].path(), "catch", Model::Muzero { support: 5 }, HeadKind::Flattened);
        let opinion = think(&learned, &Question { seed: 3, ..question("catch", &[], 8) }).unwrap();
        assert_eq!(opinion.analysis.actions.len(), 3);
    }

    #[test]
    fn what_cannot_be_searched_is_an_error_with_the_reason() {
        let runs = tempfile::tempdir().unwrap();
        let run = begin_with(runs.path(), "tic_tac_toe");
        let remote = ConsoleThinker::new(run.clone(), Some("http://127.0.0.1:9".to_owned()));
        let thinker = ConsoleThinker::new(run, None);
        assert!(remote.is_remote() && !thinker.is_remote());
        let refused = |question: &Question| think(&thinker, question).unwrap_err();
        for (actions, reason) in [
            (&[][..], "run noughts has published no weights yet"),
            (&[4, 4], "replay the game: action 4 is not legal at ply 1 of tic_tac_toe"),
            (&[9], "replay the game: action 9 is not legal at ply 0 of tic_tac_toe"),
            (&[0, 3, 1, 4, 2], "the game is over"),
        ] {
            let error = refused(&question("tic_tac_toe", actions, 8));
            assert!(error.starts_with(reason), "{error}");
        }
        let game = games::stored("gym:Any-v0").unwrap();
        let error = refused(&Question { game, ..question("tic_tac_toe", &[], 0) });
        assert!(error.starts_with("gym:Any-v0 runs outside this program"), "{error}");
        let version = Some(WeightsVersion(1));
        let error = think(&remote, &Question { version, ..question("tic_tac_toe", &[], 0) }).unwrap_err();
        assert!(error.contains("a version of noughts cannot be selected"), "{error}");
    }
}
