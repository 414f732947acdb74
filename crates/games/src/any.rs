//! The rules of any registered game as one type.

use std::sync::Arc;

use game::{Action, Board, Chance, Error, Game, Outcome, Player, Spec, Symmetry};

use crate::{AnyGame, AnyPosition, recorded};

impl AnyPosition {
    /// Returns a position of an environment outside this program; only this observation `[C, H, W]` is known.
    #[must_use]
    pub fn observed(observation: Arc<[f32]>) -> Self {
        Self::Recorded(recorded::Position::observed(observation))
    }
}

impl Game for AnyGame {
    type Position = AnyPosition;

    fn spec(&self) -> &Spec {
        with_rules!(self, |game| game.spec())
    }

    fn start(&self) -> AnyPosition {
        with_rules!(self, |game| as_position(game.start()))
    }

    fn start_from(&self, seed: u64) -> AnyPosition {
        with_rules!(self, |game| as_position(game.start_from(seed)))
    }

    fn to_move(&self, position: &AnyPosition) -> Player {
        with_position!(self, position, |game, at| game.to_move(at))
    }

    fn legal_actions(&self, position: &AnyPosition, actions: &mut Vec<Action>) {
        with_position!(self, position, |game, at| game.legal_actions(at, actions));
    }

    fn is_legal(&self, position: &AnyPosition, action: Action) -> bool {
        with_position!(self, position, |game, at| game.is_legal(at, action))
    }

    fn play(&self, position: &mut AnyPosition, action: Action) -> f32 {
        with_position!(self, position, |game, at| game.play(at, action))
    }

    fn knows_chances(&self) -> bool {
        with_rules!(self, |game| game.knows_chances())
    }

    fn chances(&self, position: &AnyPosition, action: Action, chances: &mut Vec<Chance>) {
        with_position!(self, position, |game, at| game.chances(at, action, chances));
    }

    fn play_chance(&self, position: &mut AnyPosition, action: Action, outcome: u16) -> f32 {
        with_position!(self, position, |game, at| game.play_chance(at, action, outcome))
    }

    fn outcome(&self, position: &AnyPosition) -> Option<Outcome> {
        with_position!(self, position, |game, at| game.outcome(at))
    }

    fn observe(&self, position: &AnyPosition, planes: &mut [f32]) {
        with_position!(self, position, |game, at| game.observe(at, planes));
    }

    fn hash(&self, position: &AnyPosition) -> u64 {
        with_position!(self, position, |game, at| game.hash(at))
    }

    fn symmetries(&self) -> &[Symmetry] {
        with_rules!(self, |game| game.symmetries())
    }

    fn image(&self, position: &AnyPosition, symmetry: usize) -> AnyPosition {
        with_position!(self, position, |game, at| as_position(game.image(at, symmetry)))
    }

    fn heuristic_value(&self, position: &AnyPosition) -> i32 {
        with_position!(self, position, |game, at| game.heuristic_value(at))
    }

    fn action_name(&self, position: &AnyPosition, action: Action) -> String {
        with_position!(self, position, |game, at| game.action_name(at, action))
    }

    fn parse_action(&self, position: &AnyPosition, text: &str) -> Result<Action, Error> {
        with_position!(self, position, |game, at| game.parse_action(at, text))
    }

    fn render(&self, position: &AnyPosition) -> String {
        with_position!(self, position, |game, at| game.render(at))
    }

    fn board(&self, position: &AnyPosition) -> Option<Board> {
        with_position!(self, position, |game, at| game.board(at))
    }
}
