//! An engine and an input for tests: [`FirstCell`], [`Script`].
//!
//! The only rule is that stones lie on different cells, so that protocol tests need neither a game nor a search.

use std::collections::VecDeque;
use std::ops::ControlFlow;

use crate::{
    Analysis, BoardGame, Candidate, Cell, Color, Engine, Error, GameResult, GoRules, Identity, Input, Line, Move,
    Progress, Restriction, RestrictionKind, Rules, Search, Setup, Size, Status, VariationPly, Victory,
};

/// Maximum board side that [`FirstCell`] accepts.
const SIDE_MAX: usize = 19;
/// Simulations per search slice.
const SLICE: u32 = 8;
/// Maximum number of simulations in a search.
const VISITS_MAX: u32 = 1 << 11;
/// Maximum number of moves in an analysis.
const CANDIDATES_MAX: usize = 30;

/// An engine that plays the first empty cell; two passes end the game.
#[derive(Debug, Clone)]
pub struct FirstCell {
    identity: Identity,
    size: Size,
    cells: Vec<Option<Color>>,
    komi: f32,
    to_move: Color,
    passes: u32,
    plies: usize,
    /// True to resign instead of passing.
    pub resigns: bool,
    /// True to search while the opponent thinks.
    pub ponders: bool,
    /// Number of searches so far.
    pub searches: usize,
}

impl FirstCell {
    /// Returns an engine for this game with an empty board of 9 × 9.
    #[must_use]
    pub fn new(game: BoardGame) -> Self {
        let size = Size::square(9).expect("boards have up to 52 cells a side");
        let rules = if game == BoardGame::Go { Rules::Go(GoRules::TROMP_TAYLOR) } else { Rules::Usual };
        let identity = Identity { name: "first-cell".into(), version: "1.0".into(), game, size, komi: 0.0, rules };
        Self {
            identity,
            size,
            cells: vec![None; size.len()],
            komi: 0.0,
            to_move: Color::Black,
            passes: 0,
            plies: 0,
            resigns: false,
            ponders: false,
            searches: 0,
        }
    }

    fn first_cell(&self, color: Color, restrictions: &[Restriction]) -> Move {
        let is_allowed = |played: &Move| {
            restrictions
                .iter()
                .filter(|restriction| restriction.color == color)
                .all(|restriction| restriction.moves.contains(played) == (restriction.kind == RestrictionKind::Allow))
        };
        let nothing_left = if self.resigns { Move::Resign } else { Move::Pass };
        self.empty_cells().map(Move::Place).find(is_allowed).unwrap_or(nothing_left)
    }

    fn empty_cells(&self) -> impl Iterator<Item = Cell> {
        self.size.cells().filter(move |cell| self.cells[self.size.index(*cell)].is_none())
    }

    fn count(&self, color: Color) -> f32 {
        self.cells.iter().filter(|cell| **cell == Some(color)).count() as f32
    }

    fn analysis(&self, search: &Search<'_>, visits: u32) -> Analysis {
        let choice = self.first_cell(search.color, search.restrictions);
        let mut moves: Vec<Move> =
            self.empty_cells().map(Move::Place).filter(|played| *played != choice).take(CANDIDATES_MAX).collect();
        if choice != Move::Resign {
            moves.insert(0, choice);
        }
        let prior = 1.0 / moves.len().max(1) as f32;
        let candidate = |(order, &played): (usize, &Move)| Candidate {
            played,
            visits: if order == 0 { visits } else { 0 },
            value: 0.25,
            prior,
            variation: vec![VariationPly { played, visits }],
        };
        Analysis {
            to_move: search.color,
            choice,
            visits,
            value: 0.25,
            network_value: 0.125,
            candidates: moves.iter().enumerate().map(candidate).collect(),
            priors: moves.iter().map(|&played| (played, prior)).collect(),
            hash: 0xab,
            symmetric_hash: 0xcd,
        }
    }
}

impl Engine for FirstCell {
    fn identity(&self) -> &Identity {
        &self.identity
    }

    fn start(&mut self, setup: &Setup) -> Result<(), Error> {
        let Setup { size, komi, rules, stones, to_move } = setup;
        if size.width() > SIDE_MAX || size.height() > SIDE_MAX {
            return Err(Error::refused(format!("boards have at most {SIDE_MAX} cells a side")));
        }
        if komi.abs() > 150.0 {
            return Err(Error::refused(format!("a komi of {komi} is more than 150")));
        }
        if matches!(rules, Rules::Go(rules) if rules.has_button) {
            return Err(Error::refused("there is no button"));
        }
        self.cells = vec![None; size.len()];
        for stone in stones {
            if !size.contains(stone.cell) || self.cells[size.index(stone.cell)].replace(stone.color).is_some() {
                return Err(Error::refused("a stone lies outside the board, or on another one"));
            }
        }
        (self.size, self.komi, self.passes, self.plies) = (*size, *komi, 0, 0);
        self.to_move = to_move.unwrap_or(Color::Black);
        Ok(())
    }

    fn play(&mut self, color: Color, played: Move) -> Result<(), Error> {
        if self.passes >= 2 && played != Move::Pass {
            return Err(Error::refused("the game is over"));
        }
        match played {
            Move::Place(cell) => {
                if !self.size.contains(cell) || self.cells[self.size.index(cell)].is_some() {
                    return Err(Error::refused("the cell is not empty"));
                }
                self.cells[self.size.index(cell)] = Some(color);
                self.passes = 0;
            }
            Move::Pass => self.passes += 1,
            Move::Swap if self.plies == 1 => {
                for cell in &mut self.cells {
                    *cell = cell.map(|_| color);
                }
            }
            Move::Swap | Move::Resign => return Err(Error::refused("the move is not legal here")),
        }
        self.plies += 1;
        self.to_move = color.opponent();
        Ok(())
    }

    fn to_move(&self) -> Color {
        self.to_move
    }

    fn legal_moves(&self) -> Vec<Move> {
        let swap = (self.identity.game == BoardGame::Hex && self.plies == 1).then_some(Move::Swap);
        let moves = self.empty_cells().map(Move::Place).chain([Move::Pass]).chain(swap);
        if self.passes >= 2 { Vec::new() } else { moves.collect() }
    }

    fn search(&mut self, search: &Search<'_>, progress: &mut Progress<'_>) -> Result<Analysis, Error> {
        if self.passes >= 2 {
            return Err(Error::refused("the game is over"));
        }
        self.searches += 1;
        let limit = search.visits.unwrap_or(VISITS_MAX).min(VISITS_MAX);
        let mut visits = 0;
        loop {
            visits = (visits + SLICE).min(limit);
            let analysis = self.analysis(search, visits);
            if progress(&analysis) == ControlFlow::Break(()) || visits == limit {
                return Ok(analysis);
            }
        }
    }

    fn result(&mut self) -> Result<GameResult, Error> {
        if self.identity.game == BoardGame::Go {
            return Ok(GameResult::from_margin(self.count(Color::Black) - self.count(Color::White) - self.komi));
        }
        if self.empty_cells().next().is_some() {
            return Err(Error::refused("the game is not over"));
        }
        Ok(GameResult::Win { color: Color::Black, by: Victory::Unspecified })
    }

    fn status(&mut self, status: Status) -> Result<Vec<Vec<Cell>>, Error> {
        let stones = self.size.cells().filter(|cell| self.cells[self.size.index(*cell)].is_some());
        Ok(if status == Status::Alive { stones.map(|cell| vec![cell]).collect() } else { Vec::new() })
    }

    fn render(&self) -> String {
        let symbol = |cell: &Option<Color>| match cell {
            Some(Color::Black) => 'X',
            Some(Color::White) => 'O',
            None => '.',
        };
        let rows = self.cells.chunks(self.size.width()).map(|row| row.iter().map(symbol).collect::<String>());
        rows.collect::<Vec<_>>().join("\n")
    }

    fn ponders(&self) -> bool {
        self.ponders
    }
}

/// Input lines that arrive while a session searches: each after some polls of the input.
#[derive(Debug, Clone)]
pub struct Script {
    lines: VecDeque<String>,
    looks_per_line: usize,
    looks: usize,
    front: Option<Line>,
}

impl Script {
    /// Returns the lines of a text. Each line arrives after `looks_per_line` polls of the input.
    #[must_use]
    pub fn new(text: &str, looks_per_line: usize) -> Self {
        Self { lines: text.lines().map(str::to_owned).collect(), looks_per_line, looks: 0, front: None }
    }
}

impl Input for Script {
    fn next(&mut self) -> Line {
        self.looks = 0;
        self.front.take().unwrap_or_else(|| self.lines.pop_front().map_or(Line::End, Line::Text))
    }

    fn peek(&mut self) -> &Line {
        let lines = &mut self.lines;
        self.front.get_or_insert_with(|| lines.pop_front().map_or(Line::End, Line::Text))
    }

    fn waiting(&mut self) -> Option<&Line> {
        self.looks += 1;
        if self.front.is_none() && self.looks >= self.looks_per_line {
            self.front = Some(self.lines.pop_front().map_or(Line::End, Line::Text));
        }
        self.front.as_ref()
    }
}
