//! `zerofleet play`: a game against weights, in the terminal.
//!
//! Reads lines and writes text, from wherever the caller says, so that a test can play too; knows neither terminals nor
//! runs nor libtorch. Start with [`play`].

mod command;
mod report;
#[cfg(test)]
mod tests;

use std::io::{self, BufRead, Write};

use game::{Action, Game, Outcome, Player};
use inference::Evaluator;
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;
use selfplay::{Analysis, AnalysisSettings, SearchSettings, analyse_together};

use command::{Command, HELP, Line, read_line};

/// A leaf in flight is searched around before it is known: for each of them the search makes so many simulations.
const SIMULATIONS_PER_LEAF_IN_FLIGHT: usize = 32;
/// From here on larger batches gain little on a CPU.
const LEAVES_PER_BATCH_MAX: usize = 8;

/// How the program plays.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Simulations for each of its moves and hints; 0 plays the raw policy.
    pub simulations: u32,
    /// How its trees search.
    pub search: SearchSettings,
    /// Which side the person takes at the start.
    pub person: Player,
    /// How many moves of the search policy are listed.
    pub listed_moves: usize,
    /// Where random choices come from, should the search make any.
    pub seed: u64,
}

impl Settings {
    /// The usual search with this many simulations; the person begins.
    #[must_use]
    pub fn new(simulations: u32) -> Self {
        Self { simulations, search: SearchSettings::default(), person: Player::First, listed_moves: 5, seed: 0 }
    }
}

/// Why a game was broken off.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The terminal could not be read or written.
    #[error("read or write the terminal")]
    Terminal(#[from] io::Error),
    /// The evaluator failed.
    #[error("evaluate the position")]
    Evaluator(#[from] inference::Error),
}

/// Plays until the person quits or the input ends. The evaluators hold the same weights and search together, each on a thread.
///
/// # Errors
/// [`Error`] says whether the terminal or the evaluator is at fault. No input is an error: what is not understood is
/// answered and asked again.
pub fn play<G: Game>(
    game: &G,
    settings: &Settings,
    evaluators: &mut [Box<dyn Evaluator>],
    input: &mut impl BufRead,
    output: &mut impl Write,
) -> Result<(), Error> {
    let table = Table {
        game,
        settings,
        evaluators,
        output,
        rng: ChaCha8Rng::seed_from_u64(settings.seed),
        person: settings.person,
        actions: Vec::new(),
        position: game.start(),
    };
    table.sit_down(input)
}

/// Where the two sit: the game so far, and what is needed to go on.
struct Table<'a, G: Game, W> {
    game: &'a G,
    settings: &'a Settings,
    evaluators: &'a mut [Box<dyn Evaluator>],
    output: &'a mut W,
    rng: ChaCha8Rng,
    person: Player,
    actions: Vec<Action>,
    position: G::Position,
}

enum Next {
    GoOn,
    Leave,
}

impl<G: Game, W: Write> Table<'_, G, W> {
    fn sit_down(mut self, input: &mut impl BufRead) -> Result<(), Error> {
        let attributes = self.evaluators[0].attributes();
        let (game, simulations) = (&self.game.spec().name, self.settings.simulations);
        let (name, version) = (&attributes.name, attributes.weights_version);
        writeln!(self.output, "{game} against weights version {version} ({name}), {simulations} simulations a move")?;
        writeln!(self.output, "type a move, or `help`")?;
        self.draw()?;
        loop {
            if self.is_programs_turn() {
                self.answer()?;
                continue;
            }
            self.prompt()?;
            let next = match read_line(input)? {
                Line::End => {
                    writeln!(self.output, "\nthe input ended: goodbye")?;
                    Next::Leave
                }
                Line::TooLong => self.complain("that line is too long for a move or a command")?,
                Line::Text(text) => self.obey(&text)?,
            };
            if matches!(next, Next::Leave) {
                self.output.flush()?;
                return Ok(());
            }
        }
    }

    fn outcome(&self) -> Option<Outcome> {
        self.game.outcome(&self.position)
    }

    fn is_programs_turn(&self) -> bool {
        self.outcome().is_none() && self.game.to_move(&self.position) != self.person
    }

    fn draw(&mut self) -> io::Result<()> {
        writeln!(self.output, "\n{}\n", self.game.render(&self.position))?;
        let verdict = match self.outcome() {
            None => return Ok(()),
            Some(Outcome::Win(winner)) if winner == self.person => "you win",
            Some(Outcome::Win(_)) => "the program wins",
            Some(Outcome::Draw) => "a draw",
            Some(Outcome::Finished) => "the game is over",
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

    fn obey(&mut self, text: &str) -> Result<Next, Error> {
        match Command::read(text) {
            Command::Nothing => {}
            Command::Quit => {
                writeln!(self.output, "goodbye")?;
                return Ok(Next::Leave);
            }
            Command::Help => writeln!(self.output, "{HELP}")?,
            Command::New => self.begin_again()?,
            Command::Back => self.take_back()?,
            Command::Hint => self.hint()?,
            Command::Sides => self.change_sides()?,
            Command::Move(text) => self.try_move(text)?,
        }
        Ok(Next::GoOn)
    }

    fn complain(&mut self, complaint: &str) -> io::Result<Next> {
        writeln!(self.output, "{complaint}")?;
        Ok(Next::GoOn)
    }

    fn begin_again(&mut self) -> io::Result<()> {
        self.rewind_to(0);
        self.draw()
    }

    /// Takes back the person's last move and all that followed it.
    fn take_back(&mut self) -> io::Result<()> {
        let mut replayed = self.game.start();
        let mut last_own = None;
        for (ply, &action) in self.actions.iter().enumerate() {
            if self.game.to_move(&replayed) == self.person {
                last_own = Some(ply);
            }
            self.game.play(&mut replayed, action);
        }
        match last_own {
            Some(ply) => {
                self.rewind_to(ply);
                self.draw()
            }
            None => writeln!(self.output, "you have not moved yet: there is nothing to take back"),
        }
    }

    fn rewind_to(&mut self, plies: usize) {
        self.actions.truncate(plies);
        self.position = self.game.replay(&self.actions).expect("these actions were played before");
    }

    fn change_sides(&mut self) -> io::Result<()> {
        if self.outcome().is_some() {
            return writeln!(self.output, "the game is over: `new` begins another");
        }
        self.person = self.person.opponent();
        writeln!(self.output, "you have changed sides")
    }

    fn hint(&mut self) -> Result<(), Error> {
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
            return writeln!(self.output, "the game is over: `new` begins another");
        }
        match self.game.try_play(&mut self.position, action) {
            Ok(_) => {
                self.actions.push(action);
                self.draw()
            }
            Err(_) => writeln!(self.output, "`{text}` is not legal here"),
        }
    }

    /// The program's move.
    fn answer(&mut self) -> Result<(), Error> {
        let analysis = self.analyse()?;
        let name = self.game.action_name(&self.position, analysis.best);
        writeln!(self.output, "the program plays {name}")?;
        self.report(&analysis, "the program")?;
        self.game.play(&mut self.position, analysis.best);
        self.actions.push(analysis.best);
        self.draw()?;
        Ok(())
    }

    fn analyse(&mut self) -> Result<Analysis, Error> {
        let Settings { simulations, search, .. } = self.settings;
        let in_flight = *simulations as usize / SIMULATIONS_PER_LEAF_IN_FLIGHT;
        let leaves_per_tree = (in_flight / self.evaluators.len()).clamp(1, LEAVES_PER_BATCH_MAX);
        let settings = AnalysisSettings {
            simulations: *simulations,
            search: search.clone(),
            leaves_per_tree,
            batch: leaves_per_tree,
        };
        Ok(analyse_together(self.game, &self.position, &settings, self.evaluators, &mut self.rng)?)
    }

    fn report(&mut self, analysis: &Analysis, mover: &str) -> io::Result<()> {
        report::write(self.game, &self.position, analysis, mover, self.settings.listed_moves, self.output)
    }
}
