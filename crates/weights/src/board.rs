//! Evaluation of one board's network on another board: [`Architecture::on`].

use crate::{Architecture, HeadKind, Manifest, Model};

/// Interface between a game and a network: the game with the board, the observation and the actions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Board<'a> {
    /// Name of the game, with the board: `go-9`.
    pub game: &'a str,
    /// Observation shape, `[C, H, W]`.
    pub observation: [usize; 3],
    /// The number of actions.
    pub actions: usize,
}

/// Reasons why a network cannot be evaluated on a board.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum OtherGame {
    /// The weights were trained for another game.
    #[error("the weights are for {weights}, not for {game}")]
    Name {
        /// Game of the weights.
        weights: String,
        /// Game played here.
        game: String,
    },
    /// The weights were trained for another board of the game, and some tensors depend on the board.
    #[error("the weights are for {weights}, not for {game}: {reason}")]
    Board {
        /// Game of the weights, with the board.
        weights: String,
        /// Game played here, with the board.
        game: String,
        /// Board-dependent part of the network.
        reason: OneBoard,
    },
    /// The network takes other observations or actions.
    #[error("the network has [planes, height, width, actions] {takes:?}, {game} has {has:?}")]
    Shape {
        /// Game played here.
        game: String,
        /// Shape of the network.
        takes: [usize; 4],
        /// Shape of the game.
        has: [usize; 4],
    },
}

/// Reasons why a network fits a single board.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum OneBoard {
    /// The model or the game does not allow pooled heads.
    #[error("only AlphaZero networks for games with one action per cell support several board sizes")]
    Kind,
    /// The heads are flattened.
    #[error("the heads are not pooled (network.heads)")]
    Heads,
    /// There are attention blocks.
    #[error("attention blocks support only one board size")]
    Attention,
}

impl Board<'_> {
    /// Returns k, the number of actions per cell, and m, the number of actions that belong to no cell. Action cell ·
    /// k + i is the i-th action of a cell; the last m actions belong to no cell.
    #[must_use]
    pub const fn actions_of_cells(self) -> [usize; 2] {
        let [_, height, width] = self.observation;
        actions_of_cells(self.actions, height * width)
    }

    /// Returns the name of the game without the board.
    fn family(&self) -> &str {
        self.game.split_once('-').map_or(self.game, |(family, _)| family)
    }
}

const fn actions_of_cells(actions: usize, cells: usize) -> [usize; 2] {
    match actions.checked_div(cells) {
        Some(of_cell) => [of_cell, actions % cells],
        None => [0, actions],
    }
}

impl Architecture {
    /// Returns the board of the latest training.
    #[must_use]
    pub fn board(&self) -> Board<'_> {
        let &Self { ref game, planes, height, width, actions, .. } = self;
        Board { game, observation: [planes, height, width], actions }
    }

    /// Returns the architecture with the same tensors on another board of the same game. With
    /// [pooled](HeadKind::Pooled) heads and without attention any board fits; otherwise the board must be the same.
    ///
    /// # Errors
    /// [`OtherGame`] names the difference.
    pub fn on(&self, board: Board<'_>) -> Result<Self, OtherGame> {
        let own = self.board();
        let names = || (own.game.to_owned(), board.game.to_owned());
        if own.family() != board.family() {
            let (weights, game) = names();
            return Err(OtherGame::Name { weights, game });
        }
        if own.game != board.game {
            let can_pool = self.model == Model::Alphazero && own.actions_of_cells()[0] > 0;
            let reason = match (self.design.heads, self.design.attention) {
                (HeadKind::Flattened, _) if !can_pool => Some(OneBoard::Kind),
                (HeadKind::Flattened, _) => Some(OneBoard::Heads),
                (HeadKind::Pooled, 1..) => Some(OneBoard::Attention),
                (HeadKind::Pooled, 0) => None,
            };
            if let Some(reason) = reason {
                let (weights, game) = names();
                return Err(OtherGame::Board { weights, game, reason });
            }
        }
        let fits = if own.game == board.game {
            own == board
        } else {
            own.observation[0] == board.observation[0] && own.actions_of_cells() == board.actions_of_cells()
        };
        if !fits {
            let shape = |Board { observation: [planes, height, width], actions, .. }| [planes, height, width, actions];
            let game = board.game.to_owned();
            return Err(OtherGame::Shape { game, takes: shape(own), has: shape(board) });
        }
        let [planes, height, width] = board.observation;
        Ok(Self { game: board.game.to_owned(), planes, height, width, actions: board.actions, ..self.clone() })
    }
}

impl Manifest {
    /// Returns the manifest of the same bytes on another board of the same game, like [`Architecture::on`].
    ///
    /// # Errors
    /// [`OtherGame`] names the difference.
    pub fn on(&self, board: Board<'_>) -> Result<Self, OtherGame> {
        Ok(Self { architecture: self.architecture.on(board)?, ..self.clone() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Design;

    fn go(side: usize, heads: HeadKind, attention: usize) -> Architecture {
        Architecture {
            design: Design { heads, attention, attention_heads: attention, ..Design::default() },
            ..Architecture::plain(format!("go-{side}"), [12, side, side], side * side + 1, [8, 1])
        }
    }

    #[test]
    fn a_network_with_pooled_heads_is_one_of_every_board_of_its_game() {
        let small = go(7, HeadKind::Pooled, 0);
        let large = go(13, HeadKind::Pooled, 0);
        assert_eq!(small.on(large.board()), Ok(large.clone()));
        assert_eq!(small.on(small.board()), Ok(small.clone()));
        assert_eq!(large.board().actions_of_cells(), [1, 1]);
    }

    #[test]
    fn a_network_whose_tensors_depend_on_the_board_is_of_that_board_alone() {
        for (heads, attention, part) in [(HeadKind::Flattened, 0, "heads"), (HeadKind::Pooled, 2, "attention")] {
            let small = go(7, heads, attention);
            assert_eq!(small.on(small.board()), Ok(small.clone()));
            let error = small.on(go(9, heads, attention).board()).unwrap_err().to_string();
            assert!(error.contains("go-7") && error.contains("go-9") && error.contains(part), "{error}");
        }
    }

    #[test]
    fn a_network_that_cannot_have_pooled_heads_is_of_one_board() {
        let of_returns = Model::AlphazeroReturns { support: 5 };
        for (actions, model) in [(7, Model::Alphazero), (50, of_returns)] {
            let small = Architecture { actions, model, ..go(7, HeadKind::Flattened, 0) };
            let error = small.on(go(9, HeadKind::Flattened, 0).board()).unwrap_err();
            assert!(matches!(error, OtherGame::Board { reason: OneBoard::Kind, .. }), "{error}");
        }
    }

    #[test]
    fn another_game_and_other_planes_or_actions_are_refused() {
        let small = go(7, HeadKind::Pooled, 0);
        let hex = Architecture { game: "hex-9".to_owned(), ..go(9, HeadKind::Pooled, 0) };
        assert!(matches!(small.on(hex.board()), Err(OtherGame::Name { .. })));
        let large = go(9, HeadKind::Pooled, 0);
        let with_planes = Architecture { planes: 13, ..large.clone() };
        let without_pass = Architecture { actions: 81, ..large };
        let changed = Architecture { actions: 49, ..small.clone() };
        for other in [with_planes, without_pass, changed] {
            assert!(matches!(small.on(other.board()), Err(OtherGame::Shape { .. })), "{other:?}");
        }
    }
}
