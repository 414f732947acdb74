//! Converts games to SGF records. Start with [`Recorder`].

use anyhow::Context as _;
use game::{Action, Game as _};
use games::AnyGame;
use protocols::sgf::{GameFile, Tree};
use protocols::{BoardGame, Color, GameResult, Ply, Record, Setup};
use strength::notation::Notation;

use crate::game_result::game_result;

/// Value of the SGF property `RU` in Go. SGF has no standard name for these rules.
const GO_RULES: &str = "Tromp-Taylor without suicide";

/// Converts games to SGF records.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Recorder<'a> {
    game: &'a AnyGame,
    notation: Notation,
}

impl<'a> Recorder<'a> {
    /// Returns a recorder for a game.
    ///
    /// # Errors
    /// SGF does not support the game.
    pub(crate) fn of(game: &'a AnyGame) -> anyhow::Result<Self> {
        let notation = Notation::of(game).with_context(|| {
            format!("--sgf: {} has no SGF format; use Go, Hex, Othello or Gomoku", game.spec().name)
        })?;
        Ok(Self { game, notation })
    }

    /// Returns an SGF tree: node 0 holds the properties of the game, and node i holds move i. `result` overrides the
    /// result by the rules.
    ///
    /// # Errors
    /// An action is illegal.
    pub(crate) fn record(
        &self,
        actions: &[Action],
        result: Option<GameResult>,
        names: [String; 2],
    ) -> anyhow::Result<Tree> {
        let Self { game, notation } = *self;
        let mut position = game.start();
        let mut setup = Setup::empty(notation.size());
        let komi = match game {
            AnyGame::Go(go) => Some(go.komi().points()),
            _ => None,
        };
        setup.komi = komi.unwrap_or(0.0);
        let mut record = Record::new(setup);
        for &action in actions {
            let color = Color::from(game.to_move(&position));
            game.try_play(&mut position, action)?;
            record.plies.push(Ply { color, played: notation.to_move(color, action) });
        }
        let result = result.or_else(|| game.outcome(&position).and_then(|_| game_result(game, &position)));
        let [black, white] = names.map(Some);
        let rules = (notation.game() == BoardGame::Go).then(|| GO_RULES.to_owned());
        let file = GameFile { komi, black, white, rules, ..GameFile::new(notation.game(), record, result) };
        Ok(file.to_tree())
    }
}
