//! Names the moves of a game while they are played.

use game::{Action, Error, Game};

/// Returns the name of each action in the notation of the game, as played in turn from `position`. An illegal action is
/// an error.
pub(crate) fn move_names<G: Game>(
    game: &G,
    mut position: G::Position,
    actions: impl IntoIterator<Item = Action>,
) -> impl Iterator<Item = Result<String, Error>> {
    actions.into_iter().map(move |action| {
        let name = game.action_name(&position, action);
        game.try_play(&mut position, action).map(|_| name)
    })
}
