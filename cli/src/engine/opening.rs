//! The rules and the position before the first move of a game: komi, stones and player to move.

use game::{Game as _, Player};
use games::go::Komi;
use games::{AnyGame, AnyPosition, Go};
use protocols::{BoardGame, Color, Error, GoRules, GomokuRule, HandicapBonus, Move, Rules, Scoring, Setup, Stone, Tax};
use strength::notation::Notation;

use super::board;

/// The rules and the position before the first move of a game.
pub(super) struct Opening {
    pub(super) game: AnyGame,
    pub(super) position: AnyPosition,
}

/// The rules of Go in self-play: Tromp-Taylor without suicide.
const GO_RULES: GoRules = GoRules { suicide: false, ..GoRules::TROMP_TAYLOR };

/// Returns the default rules and the usual komi of a game.
pub(super) fn usual(game: &AnyGame) -> (Rules, f32) {
    match game {
        AnyGame::Go(go) => (Rules::Go(GO_RULES), go.komi().points()),
        AnyGame::Gomoku(_) => (Rules::Gomoku(GomokuRule::Freestyle), 0.0),
        _ => (Rules::Usual, 0.0),
    }
}

impl Opening {
    /// Creates the opening that `setup` describes. `game` has the board size of `setup`.
    ///
    /// # Errors
    /// [`Error::Refused`] if `game` does not support the rules or the position in `setup`.
    pub(super) fn new(game: &AnyGame, setup: &Setup) -> Result<Self, Error> {
        match game {
            AnyGame::Go(go) => of_go(go, setup),
            AnyGame::Gomoku(_) if !matches!(setup.rules, Rules::Usual | Rules::Gomoku(GomokuRule::Freestyle)) => {
                Err(Error::refused("only free-style Gomoku is supported"))
            }
            _ => Ok(Self { game: game.clone(), position: by_play(game, setup)? }),
        }
    }
}

/// Returns the supported rules of Go nearest to `rules`.
pub(super) fn nearest(rules: GoRules) -> GoRules {
    GoRules { scoring: Scoring::Area, tax: Tax::None, has_button: false, ..rules }
}

/// Returns a position with the other player to move, as after a pass that the rules do not have; `None` if the game has
/// passes.
pub(super) fn passed(game: &AnyGame, position: &AnyPosition) -> Option<AnyPosition> {
    match (game, position) {
        (AnyGame::Hex(game), AnyPosition::Hex(position)) => Some(AnyPosition::Hex(game.passed(position))),
        (AnyGame::Gomoku(game), AnyPosition::Gomoku(position)) => Some(AnyPosition::Gomoku(game.passed(position))),
        _ => None,
    }
}

/// Creates the opening of a game of Go. Accepts all rules with area scoring, whatever the ko and suicide rules: few
/// games depend on these, and user interfaces name national rules. Adds the bonus for handicap stones to komi.
fn of_go(go: &Go, setup: &Setup) -> Result<Opening, Error> {
    let rules = match setup.rules {
        Rules::Go(rules) => rules,
        Rules::Usual | Rules::Gomoku(_) => GO_RULES,
    };
    if rules != nearest(rules) {
        return Err(Error::refused("only area scoring without tax and button is supported"));
    }
    let Setup { komi, stones, .. } = setup;
    let of_color = |color| stones.iter().filter(|stone| stone.color == color).count();
    let (black, white) = (of_color(Color::Black), of_color(Color::White));
    let is_handicap = black >= 2 && white == 0;
    let bonus = match rules.white_handicap_bonus {
        _ if !is_handicap => 0,
        HandicapBonus::Zero => 0,
        HandicapBonus::StonesLessOne => black - 1,
        HandicapBonus::Stones => black,
    };
    // The conversion is exact, since a board has few cells.
    let points = komi + bonus as f32;
    let komi = Komi::new(points).ok_or_else(|| Error::refused(format!("komi {points} is not supported")))?;
    let usual_first = if is_handicap { Color::White } else { Color::Black };
    let first = setup.to_move.unwrap_or(usual_first);
    let game = if komi == go.komi() { go.clone() } else { go.with_other_komi(komi) };
    let cells = stones.iter().map(|stone| (Player::from(stone.color), setup.size.index(stone.cell)));
    let position = game.set_up(cells, first.into()).map_err(|error| Error::refused(error.to_string()))?;
    Ok(Opening { position: AnyPosition::Go(position.into()), game: AnyGame::Go(game) })
}

/// Returns the position after playing the stones in turn, for games in which stones stay on the board. A player without
/// further stones passes. In Othello, only the initial position is possible.
fn by_play(game: &AnyGame, setup: &Setup) -> Result<AnyPosition, Error> {
    let unreachable = || Error::refused("this position is not reachable from an empty board");
    let turn = |position: &mut AnyPosition, color: Color| -> Result<(), Error> {
        if Color::from(game.to_move(position)) != color {
            *position = passed(game, position).ok_or_else(unreachable)?;
        }
        Ok(())
    };
    let notation = Notation::of(game).ok_or_else(unreachable)?;
    let mut position = game.start();
    if !setup.stones.is_empty() && notation.game() == BoardGame::Othello {
        let mut listed = vec![None; setup.size.len()];
        setup.stones.iter().for_each(|stone| listed[setup.size.index(stone.cell)] = Some(stone.color));
        if listed != board::stones(game, &position) {
            return Err(unreachable());
        }
    } else {
        for Stone { color, cell } in in_turn(&setup.stones) {
            let action = notation.to_action(color, Move::Place(cell)).ok_or_else(unreachable)?;
            turn(&mut position, color)?;
            game.try_play(&mut position, action).map_err(|_| unreachable())?;
        }
    }
    setup.to_move.map_or(Ok(()), |first| turn(&mut position, first)).map(|()| position)
}

/// Interleaves the stones of both players, Black first. The order within each colour is kept, and extra stones come
/// last.
fn in_turn(stones: &[Stone]) -> Vec<Stone> {
    let (black, white): (Vec<Stone>, Vec<Stone>) = stones.iter().partition(|stone| stone.color == Color::Black);
    (0..stones.len()).flat_map(|index| [black.get(index), white.get(index)]).flatten().copied().collect()
}
