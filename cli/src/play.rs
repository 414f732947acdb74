//! `zerofleet play`: plays a game against weights in the terminal.
//!
//! [`Args`] is the command line. Input and output of [`play`] are arguments, so that tests can play.

use std::io::{self, BufRead, Write};
use std::ops::ControlFlow;
use std::path::PathBuf;

use anyhow::{Context as _, ensure};
use figures::table::{Table, percent};
use game::{Action, Game, Outcome, Player, Players};
use games::{AnyGame, AnyPosition, GameKind};
use protocols::{Input as _, Line, Lines};
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;
use selfplay::{Analysis, AnalysisProgress, AnalysisSettings, Proven, SearchSettings, analyse_together, latent};
use service::directory::replace;

use crate::game_result::score;
use crate::move_names::move_names;
use crate::sgf::{Recorder, check_replaceable};
use crate::trained::{self, Networks, Trained};
use crate::{eval, watch};

/// The text of the command `help`.
pub(super) const HELP: &str = "\
a move   play it, in the notation of the game
back     take back your last move and the reply
hint     suggest a move
sides    swap sides
new      start a new game
pass     pass, in Go and Othello
help     show this list
quit     leave";

/// Writes the search result for `position`: evaluation, principal variation, and the best moves of the search policy.
fn write_analysis<G: Game>(
    game: &G,
    position: &G::Position,
    analysis: &Analysis,
    mover: &str,
    listed_moves: usize,
    output: &mut impl Write,
) -> io::Result<()> {
    let proven = match analysis.proven {
        Proven::Unknown => "",
        Proven::Win => ", a proven win",
        Proven::Draw => ", a proven draw",
        Proven::Loss => ", a proven loss",
    };
    let Analysis { value, network_value, .. } = analysis;
    writeln!(output, "  evaluation {value:+.2} for {mover} (raw network {network_value:+.2}){proven}")?;
    let expected = analysis.principal_variation.iter().copied().take(VARIATION_PLIES_MAX);
    let expected: Vec<String> = move_names(game, position.clone(), expected).map_while(Result::ok).collect();
    writeln!(output, "  expects    {}", expected.join(" "))?;
    let mut table = Table::default().words(["  move"]).numbers(["policy", "visits", "prior", "value"]);
    for index in ranked(analysis).into_iter().take(listed_moves) {
        let [policy, prior] = [analysis.policy[index], analysis.priors[index]].map(|share| percent(Some(share.into())));
        table.row([
            format!("  {}", game.action_name(position, analysis.actions[index])),
            policy,
            analysis.visit_counts[index].to_string(),
            prior,
            format!("{:+.2}", analysis.action_values[index]),
        ]);
    }
    write!(output, "{table}")
}

/// Returns the indices of the legal actions: the chosen action first, the rest sorted by search policy, visits and
/// prior.
pub(crate) fn ranked(analysis: &Analysis) -> Vec<usize> {
    let mut indices: Vec<usize> = (0..analysis.actions.len()).collect();
    let is_other = |index: usize| analysis.actions[index] != analysis.best;
    indices.sort_by(|&a, &b| {
        is_other(a)
            .cmp(&is_other(b))
            .then(analysis.policy[b].total_cmp(&analysis.policy[a]))
            .then(analysis.visit_counts[b].cmp(&analysis.visit_counts[a]))
            .then(analysis.priors[b].total_cmp(&analysis.priors[a]))
    });
    indices
}

/// Maximum length of an accepted line in bytes.
const LINE_BYTES_MAX: usize = 1_000;

/// Minimum number of simulations per leaf in flight. The search continues without the values of leaves in flight, so
/// every leaf in flight costs accuracy.
const SIMULATIONS_PER_LEAF_IN_FLIGHT: usize = 32;
/// Maximum batch size in leaves; larger batches gain little on a CPU.
const LEAVES_PER_BATCH_MAX: usize = 8;

/// Returns the number of leaves in a batch, if `threads` evaluators share a search of at most `simulations`
/// simulations; `None` is unlimited.
pub(crate) fn leaves_per_batch(simulations: Option<u32>, threads: usize) -> usize {
    let in_flight = simulations.map_or(usize::MAX, |simulations| simulations as usize / SIMULATIONS_PER_LEAF_IN_FLIGHT);
    (in_flight / threads.max(1)).clamp(1, LEAVES_PER_BATCH_MAX)
}

/// Searches a position in which the game is not over. The same networks always have the same analysis of a position.
/// The evaluators of an AlphaZero network search together, and report to `progress`; a MuZero network does not.
///
/// # Errors
/// The evaluation fails.
pub(crate) fn analyse(
    game: &AnyGame,
    position: &AnyPosition,
    simulations: u32,
    search: &SearchSettings,
    discount: f32,
    networks: &mut Networks,
    progress: &mut AnalysisProgress<'_>,
) -> anyhow::Result<Analysis> {
    let threads = match networks {
        Networks::Evaluators(evaluators) => evaluators.len(),
        Networks::Latent(_) => 1,
    };
    let leaves_per_tree = leaves_per_batch(Some(simulations), threads);
    let (search, batch) = (search.clone(), leaves_per_tree);
    let settings = AnalysisSettings { simulations, search, leaves_per_tree, batch, discount };
    let mut rng = ChaCha8Rng::seed_from_u64(0);
    let analysis = match networks {
        Networks::Evaluators(evaluators) => analyse_together(game, position, &settings, evaluators, &mut rng, progress),
        Networks::Latent(model) => {
            let analyses = latent::analyse(game, std::slice::from_ref(position), &settings, &mut **model, &mut rng);
            analyses.map(|analyses| analyses.into_iter().next().expect("one analysis for each position"))
        }
    };
    analysis.context("evaluate the position")
}

/// Plays a game against a model or the weights of a run, in the terminal.
///
/// In a single-player game, shows one episode played by the network, step by step.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct Args {
    /// Model to play against, as with --weights: zerofleet play connect_four.
    #[arg(value_name = "MODEL", group = "network", conflicts_with_all = ["version", "inference"])]
    model: Option<PathBuf>,

    #[command(flatten)]
    trained: trained::Args,

    /// Simulations per move and per hint; 0 plays the raw policy.
    #[arg(long, value_name = "N", default_value_t = 200)]
    simulations: u32,

    /// Evaluation threads per search; 0 for one per core.
    #[arg(long, value_name = "N", default_value_t = 0)]
    threads: usize,

    /// Play as the second player; the program moves first.
    #[arg(long)]
    second: bool,

    /// Seed of the episode in a single-player game.
    #[arg(long, value_name = "SEED", default_value_t = 0)]
    seed: u64,

    /// Save the game to this file, as SGF.
    ///
    /// Go, Hex, Othello and Gomoku only. The file is written after every move. A file that is no record of this program
    /// is not replaced.
    #[arg(long, value_name = "FILE")]
    sgf: Option<PathBuf>,
}

impl Args {
    /// Plays until the person quits; in a single-player game, until the episode ends.
    pub(crate) fn run(self) -> anyhow::Result<()> {
        let threads = if self.threads == 0 { service::machine::cores() } else { self.threads };
        let trained = match &self.model {
            Some(model) => Trained::of_model(model, &self.trained.options, threads)?,
            None => Trained::open(&self.trained, threads)?,
        };
        ensure!(
            !matches!(trained.game, GameKind::Recorded(_)),
            "{} runs outside this program and cannot be shown; use zerofleet eval",
            trained.game
        );
        let (mut input, mut output) = (io::stdin().lock(), io::stdout().lock());
        let game = trained.game.rules();
        let recorder = match &self.sgf {
            Some(file) => Some((Recorder::of(&game).context("--sgf")?, file)),
            None => None,
        };
        self.sgf.iter().try_for_each(|file| check_replaceable(file))?;
        if game.spec().players == Players::One {
            let (_, player) = eval::Player::of(trained, self.simulations);
            return watch::watch(&game, player, self.seed, &mut output);
        }
        let Trained { name, search, discount, mut networks, .. } = trained;
        let settings = Settings { discount, ..self.settings(search) };
        let version = networks.attributes().weights_version;
        let program = format!("{name} (weights version {version}, {} simulations)", self.simulations);
        let mut save = |actions: &[Action], person: Player| -> anyhow::Result<()> {
            let Some((recorder, file)) = &recorder else { return Ok(()) };
            let mut names = ["person".to_owned(), program.clone()];
            names.rotate_right(person.index());
            Ok(replace(file, recorder.record(actions, None, names)?.to_string().as_bytes())?)
        };
        play(&game, &settings, &mut networks, &mut input, &mut output, &mut save)
    }

    fn settings(&self, search: SearchSettings) -> Settings {
        let person = if self.second { Player::Second } else { Player::First };
        Settings { search, person, ..Settings::new(self.simulations) }
    }
}

/// Maximum number of moves shown from the principal variation.
const VARIATION_PLIES_MAX: usize = 12;

/// Settings of a session that do not depend on the network.
#[derive(Debug, Clone)]
pub(crate) struct Settings {
    /// Simulations per move and hint; 0 plays the raw policy.
    pub simulations: u32,
    /// The search settings.
    pub search: SearchSettings,
    /// Discount factor γ per step, for rewards and values in a learned model.
    pub discount: f32,
    /// Side of the person at the start.
    pub person: Player,
    /// Number of moves to list, those with the highest search policy.
    pub listed_moves: usize,
}

impl Settings {
    /// Returns the default settings with this number of simulations; the person moves first.
    #[must_use]
    pub(crate) fn new(simulations: u32) -> Self {
        let (search, person) = (SearchSettings::default(), Player::First);
        Self { simulations, search, discount: 1.0, person, listed_moves: 5 }
    }
}

/// Callback that saves the actions of a game, with the side of the person.
type Save<'a> = dyn FnMut(&[Action], Player) -> anyhow::Result<()> + 'a;

/// Plays until the person quits or the input ends. The evaluators of an AlphaZero network search together, each on a
/// thread. `save` is called after every change to the moves of the game, unless there are no moves.
///
/// # Errors
/// The terminal cannot be written, the evaluator failed, or `save` failed. Invalid input is not an error; the session
/// reports the problem and reads again. A failure to read counts as the end of the input.
pub(crate) fn play(
    game: &AnyGame,
    settings: &Settings,
    networks: &mut Networks,
    input: &mut impl BufRead,
    output: &mut impl Write,
    save: &mut Save<'_>,
) -> anyhow::Result<()> {
    let session = Session {
        game,
        settings,
        networks,
        output,
        save,
        person: settings.person,
        actions: Vec::new(),
        is_saved: true,
        position: game.start(),
    };
    session.run(input)
}

/// A session: the game so far, the network, and the output.
struct Session<'a, W> {
    game: &'a AnyGame,
    settings: &'a Settings,
    networks: &'a mut Networks,
    output: &'a mut W,
    save: &'a mut Save<'a>,
    person: Player,
    actions: Vec<Action>,
    /// True if all actions are saved.
    is_saved: bool,
    position: AnyPosition,
}

impl<W: Write> Session<'_, W> {
    fn run(mut self, input: &mut impl BufRead) -> anyhow::Result<()> {
        let mut lines = Lines::new(input, LINE_BYTES_MAX);
        let attributes = self.networks.attributes();
        let (game, simulations) = (&self.game.spec().name, self.settings.simulations);
        let (name, version) = (&attributes.name, attributes.weights_version);
        writeln!(self.output, "{game} against weights version {version} ({name}), {simulations} simulations a move")?;
        writeln!(self.output, "type a move, or `help`")?;
        self.draw()?;
        loop {
            self.save()?;
            if self.is_programs_turn() {
                self.answer()?;
                continue;
            }
            if self.must_pass() {
                writeln!(self.output, "`pass` is the only legal move")?;
            }
            self.prompt()?;
            let next = match lines.next() {
                Line::End => {
                    writeln!(self.output, "\nend of input: goodbye")?;
                    ControlFlow::Break(())
                }
                Line::TooLong => {
                    writeln!(self.output, "line too long")?;
                    ControlFlow::Continue(())
                }
                Line::Text(text) => self.execute(text.trim())?,
            };
            if next.is_break() {
                return Ok(self.output.flush()?);
            }
        }
    }

    fn save(&mut self) -> anyhow::Result<()> {
        if !std::mem::replace(&mut self.is_saved, true) {
            (self.save)(&self.actions, self.person).context("save the game")?;
        }
        Ok(())
    }

    fn outcome(&self) -> Option<Outcome> {
        self.game.outcome(&self.position)
    }

    fn is_programs_turn(&self) -> bool {
        self.outcome().is_none() && self.game.to_move(&self.position) != self.person
    }

    fn must_pass(&self) -> bool {
        let mut legal = Vec::new();
        self.game.legal_actions(&self.position, &mut legal);
        matches!(*legal, [only] if self.game.action_name(&self.position, only) == "pass")
    }

    fn draw(&mut self) -> io::Result<()> {
        writeln!(self.output, "\n{}", self.game.render(&self.position))?;
        if let Some(score) = score(self.game, &self.position) {
            writeln!(self.output, "{score}")?;
        }
        writeln!(self.output)?;
        let verdict = match self.outcome() {
            None => return Ok(()),
            Some(Outcome::Win(winner)) if winner == self.person => "you win",
            Some(Outcome::Win(_)) => "the program wins",
            Some(Outcome::Draw) => "a draw",
            Some(Outcome::Finished | Outcome::Truncated) => "the game is over",
        };
        writeln!(self.output, "{verdict}; `back`, `new` or `quit`?")
    }

    fn prompt(&mut self) -> io::Result<()> {
        let side = match self.person {
            Player::First => "first player",
            Player::Second => "second player",
        };
        write!(self.output, "{side}> ")?;
        self.output.flush()
    }

    /// Executes a command. Any other text is a move.
    fn execute(&mut self, text: &str) -> anyhow::Result<ControlFlow<()>> {
        match text.to_lowercase().as_str() {
            "" => {}
            "back" => self.take_back()?,
            "hint" => self.hint()?,
            "sides" => self.change_sides()?,
            "new" => self.restart()?,
            "help" | "?" => writeln!(self.output, "{HELP}")?,
            "quit" | "exit" => {
                writeln!(self.output, "goodbye")?;
                return Ok(ControlFlow::Break(()));
            }
            _ => self.try_move(text)?,
        }
        Ok(ControlFlow::Continue(()))
    }

    fn restart(&mut self) -> io::Result<()> {
        self.rewind_to(0);
        self.draw()
    }

    /// Takes back the person's last move and all later moves.
    fn take_back(&mut self) -> io::Result<()> {
        let is_own = |ply: &usize| self.game.to_move(&self.replayed(*ply)) == self.person;
        match (0..self.actions.len()).rev().find(is_own) {
            Some(ply) => {
                self.rewind_to(ply);
                self.draw()
            }
            None => writeln!(self.output, "no move to take back: you have not moved yet"),
        }
    }

    fn rewind_to(&mut self, plies: usize) {
        self.position = self.replayed(plies);
        self.actions.truncate(plies);
        // The file keeps the old game until the first move of a new game.
        self.is_saved = plies == 0;
    }

    /// Returns the position after the first `plies` moves of the game.
    fn replayed(&self, plies: usize) -> AnyPosition {
        self.game.replay(&self.actions[..plies]).expect("these actions were played before")
    }

    fn change_sides(&mut self) -> io::Result<()> {
        if self.outcome().is_some() {
            return writeln!(self.output, "the game is over: `new` starts another");
        }
        self.person = self.person.opponent();
        writeln!(self.output, "you have changed sides")
    }

    fn hint(&mut self) -> anyhow::Result<()> {
        if self.outcome().is_some() {
            writeln!(self.output, "the game is over: there is no move to suggest")?;
            return Ok(());
        }
        let analysis = self.analyse()?;
        let name = self.game.action_name(&self.position, analysis.best);
        writeln!(self.output, "the program would play {name}")?;
        self.report(&analysis, "you")?;
        Ok(())
    }

    fn try_move(&mut self, text: &str) -> io::Result<()> {
        let action = match self.game.parse_action(&self.position, text) {
            Ok(action) => action,
            Err(error) => return writeln!(self.output, "{error}; `help` lists the commands"),
        };
        if self.outcome().is_some() {
            return writeln!(self.output, "the game is over: `new` starts another");
        }
        match self.game.try_play(&mut self.position, action) {
            Ok(_) => {
                self.push(action);
                self.draw()
            }
            Err(_) => writeln!(self.output, "`{text}` is not legal here"),
        }
    }

    fn push(&mut self, action: Action) {
        self.actions.push(action);
        self.is_saved = false;
    }

    /// Chooses, reports and plays the program's move.
    fn answer(&mut self) -> anyhow::Result<()> {
        let analysis = self.analyse()?;
        let name = self.game.action_name(&self.position, analysis.best);
        writeln!(self.output, "the program plays {name}")?;
        self.report(&analysis, "the program")?;
        self.game.play(&mut self.position, analysis.best);
        self.push(analysis.best);
        self.draw()?;
        Ok(())
    }

    fn analyse(&mut self) -> anyhow::Result<Analysis> {
        let Settings { simulations, search, discount, .. } = self.settings;
        let (game, position) = (self.game, &self.position);
        analyse(game, position, *simulations, search, *discount, self.networks, &mut |_, _| ControlFlow::Continue(()))
    }

    fn report(&mut self, analysis: &Analysis, mover: &str) -> io::Result<()> {
        write_analysis(self.game, &self.position, analysis, mover, self.settings.listed_moves, self.output)
    }
}

#[cfg(test)]
mod tests;
