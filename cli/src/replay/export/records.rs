//! Writes the games of trajectories as SGF records, with one file per game, since few programs read more than the first
//! game of a file.

use std::fs;
use std::path::Path;

use anyhow::Context as _;
use experience::{Step, Trajectory};
use game::{Action, Game as _, Outcome};
use games::{AnyGame, AnyPosition};
use protocols::sgf::{Property, Tree};
use protocols::{GameResult, Victory};

use crate::replay::game_of;
use crate::replay::show::searched;
use crate::sgf::{Recorder, prepare_directory};

/// Maximum number of moves listed per search policy.
const LISTED_MOVES: usize = 5;

/// A directory of records, created with the first record.
pub(super) struct Records<'a> {
    folder: &'a Path,
    is_prepared: bool,
}

impl<'a> Records<'a> {
    pub(super) const fn new(folder: &'a Path) -> Self {
        Self { folder, is_prepared: false }
    }

    /// Writes a game to a separate file with the name `ACTOR-EPOCH-SEQUENCE.sgf`.
    ///
    /// # Errors
    /// The game has no SGF format, the directory already contained records, a move is illegal, or a file cannot be
    /// written.
    pub(super) fn write(&mut self, trajectory: &Trajectory) -> anyhow::Result<()> {
        let id = trajectory.id();
        let game = game_of(trajectory.game())?.rules();
        if !self.is_prepared {
            prepare_directory(self.folder, &game).context("--format sgf")?;
            self.is_prepared = true;
        }
        let tree = tree(&game, trajectory).with_context(|| format!("convert trajectory {}", id.slashed()))?;
        let path = self.folder.join(format!("{id}.sgf"));
        fs::write(&path, tree.to_string()).with_context(|| format!("write {}", path.display()))
    }
}

/// Returns the SGF tree of a game with comments.
fn tree(game: &AnyGame, trajectory: &Trajectory) -> anyhow::Result<Tree> {
    let (mut position, mut comments) = (game.start(), Vec::new());
    for step in trajectory.steps() {
        comments.push(comment(game, &position, &step));
        game.try_play(&mut position, step.action)?;
    }
    let id = trajectory.id();
    let player = format!("actor {} (weights version {})", id.actor, trajectory.last_weights_version().0);
    // Self-play ends a game before the rules do only by resignation.
    let is_resigned = game.outcome(&position).is_none();
    let result = match trajectory.outcome() {
        Outcome::Win(winner) if is_resigned => Some(GameResult::Win { color: winner.into(), by: Victory::Resignation }),
        _ => None,
    };
    let actions: Vec<Action> = trajectory.actions().collect();
    let mut tree = Recorder::of(game)?.record(&actions, result, [player.clone(), player])?;
    tree.annotate(0, Property::new("GN", format!("trajectory {}", id.slashed())));
    for (node, comment) in (1..).zip(comments) {
        tree.annotate(node, Property::new("C", comment));
    }
    Ok(tree)
}

/// Describes the search before a move. The value is for the player to move.
fn comment(game: &AnyGame, position: &AnyPosition, step: &Step) -> String {
    let name = |action: Action| {
        let is_legal = game.is_legal(position, action);
        if is_legal { game.action_name(position, action) } else { format!("illegal action {}", action.0) }
    };
    let (value, policy) = searched(step, LISTED_MOVES, name);
    match step.kind.value() {
        Some(_) => format!("value {value}, weights version {}\n{policy}", step.weights_version.0),
        None => policy,
    }
}
