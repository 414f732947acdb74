use game::{Action, Game, Player, Players};

/// The transition of an action, for a search tree.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Step {
    /// Paid on the way, to the player who moved.
    pub reward: f32,
    /// The factor that makes a value there the mover's.
    pub discount: f32,
    /// The result, if the game is over.
    pub terminal: Option<f32>,
}

impl Step {
    /// Plays `action`, which is legal, at `position`.
    pub fn play<G: Game>(game: &G, position: &mut G::Position, action: Action) -> Self {
        let mover = game.to_move(position);
        let reward = game.play(position, action);
        if let Some(outcome) = game.outcome(position) {
            // No player is to move once a game is over; the result is that of the mover's opponent, so that the
            // solver sees players alternate.
            let (judge, discount) = match game.spec().players {
                Players::One => (mover, 1.0),
                Players::Two => (mover.opponent(), -1.0),
            };
            return Self { reward, discount, terminal: Some(outcome.value_for(judge)) };
        }
        Self { reward, discount: discount(mover, game.to_move(position)), terminal: None }
    }
}

/// −1 where the other player moves next: values change sides.
fn discount(mover: Player, next: Player) -> f32 {
    if mover == next { 1.0 } else { -1.0 }
}
