//! Defines the boards of a run that are trained in addition to the board of `run.game`.

use std::collections::BTreeSet;

use game::Game as _;
use games::{AnyGame, GameKind};
use service::ConfigError;
use service::config::RunSection;
use transport::servers::Endpoints;
use weights::{Architecture, OneBoard, OtherGame};

use super::{Config, LearnerSection, Settings, parsed};

service::section! {
    /// An entry of `[[learner.boards]]`: an additional board.
    #[serde(deny_unknown_fields)]
    pub struct BoardSection {
        /// The game with the size of this board, such as `go-7`.
        game: String = String::new();
        /// Addresses of the replay servers for this board, separated by commas as in `learner.replay`.
        replay: String = String::new();
    }
}

/// An additional board of a run, next to the board of `run.game`.
#[derive(Debug, Clone)]
pub struct Board {
    /// The game with the size of this board.
    pub game: GameKind,
    /// Addresses of the replay servers for this board.
    pub replay: Endpoints,
    /// Architecture of the run's network on this board.
    pub architecture: Architecture,
}

/// Returns the boards of `[[learner.boards]]`, in the order of the entries.
///
/// # Errors
/// [`ConfigError`] names the invalid key.
pub(super) fn of(config: &Config, game: &GameKind) -> Result<Vec<Board>, ConfigError> {
    let Config { run: RunSection { game: own, boards: of_run, .. }, learner, security, .. } = config;
    // `zerofleet train` creates the entries from `run.boards`, so errors name the key that the user wrote.
    let key = if of_run.is_empty() { "learner.boards" } else { "run.boards" };
    let mut names = BTreeSet::from([game.to_string()]);
    let mut boards = Vec::new();
    for BoardSection { game: name, replay } in &learner.boards {
        security.check_endpoint("learner.boards", replay)?;
        let kind: GameKind = parsed(key, name)?;
        if !names.insert(kind.to_string()) {
            let reason = format!("lists {kind} twice; a run has each board once, including run.game ({own})");
            return Err(ConfigError::invalid(key, reason));
        }
        let architecture = architecture(config, (key, &kind), &game.rules())?;
        boards.push(Board { game: kind, replay: parsed("learner.boards", replay)?, architecture });
    }
    if !of_run.is_empty() && of_run.iter().ne(learner.boards.iter().map(|board| &board.game)) {
        let reason = format!("must list the replay servers of each board in the order of run.boards: {of_run:?}");
        return Err(ConfigError::invalid("learner.boards", reason));
    }
    Ok(boards)
}

/// Returns the architecture of the run's network on the board `kind`, which is listed in `key`.
fn architecture(config: &Config, (key, kind): (&str, &GameKind), own: &AnyGame) -> Result<Architecture, ConfigError> {
    let (network, rules) = (&config.network, kind.rules());
    config.check_game(rules.spec())?;
    let (own, on_board) = (network.architecture_of(own), network.architecture_of(&rules));
    own.on(on_board.board()).map_err(|error| refused((key, kind), &error))
}

fn refused((key, kind): (&str, &GameKind), error: &OtherGame) -> ConfigError {
    match error {
        OtherGame::Name { weights, .. } => {
            ConfigError::invalid(key, format!("{kind} is a board of another game than run.game ({weights})"))
        }
        OtherGame::Board { reason: OneBoard::Kind, .. } => ConfigError::invalid(key, error),
        OtherGame::Board { reason: OneBoard::Heads, .. } => {
            let reason = format!("`flattened` heads support one board, but {key} lists {kind}; set it to `pooled`");
            ConfigError::invalid("network.heads", reason)
        }
        OtherGame::Board { reason: OneBoard::Attention, .. } => {
            let reason = format!("attention blocks support one board, but {key} lists {kind}; set it to 0");
            ConfigError::invalid("network.attention", reason)
        }
        OtherGame::Shape { .. } => ConfigError::invalid(key, error),
    }
}

/// Returns the relative frequency of training steps on each board, in the order of [`Settings::games`]: values above 0
/// with any sum.
///
/// # Errors
/// [`ConfigError`] names the key if the number of frequencies is wrong.
pub(super) fn weights(learner: &LearnerSection) -> Result<Vec<f64>, ConfigError> {
    let (key, weights, count) = ("learner.board_weights", &learner.board_weights, 1 + learner.boards.len());
    if weights.is_empty() {
        return Ok(vec![1.0; count]);
    }
    if weights.len() != count {
        let reason = format!("has {} numbers for {count} boards, of which run.game is the first", weights.len());
        return Err(ConfigError::invalid(key, reason));
    }
    Ok(weights.clone())
}

impl Settings {
    /// Returns the game on every board, starting with `run.game`. The position is the board index in a trainer.
    pub fn games(&self) -> impl Iterator<Item = &GameKind> {
        std::iter::once(&self.game).chain(self.boards.iter().map(|board| &board.game))
    }
}

#[cfg(test)]
mod tests {
    use weights::HeadKind;

    use super::*;

    /// Returns the settings of a run of `hex-5` with pooled heads and these additional boards.
    fn settings(boards: &[&str], set: impl FnOnce(&mut Config)) -> Result<Settings, String> {
        let mut config = Config::default();
        config.run.game = "hex-5".to_owned();
        config.network.heads = HeadKind::Pooled;
        let entry = |game: &&str| BoardSection { game: (*game).to_owned(), replay: format!("http://{game}:7001") };
        config.learner.boards = boards.iter().map(entry).collect();
        set(&mut config);
        config.settings().map_err(|error| error.to_string())
    }

    #[test]
    fn each_board_has_its_replay_servers_and_the_network_of_the_run() {
        let settings = settings(&["hex-4", "hex-7"], |_| {}).unwrap();
        let names: Vec<String> = settings.games().map(ToString::to_string).collect();
        assert_eq!(names, ["hex-5", "hex-4", "hex-7"]);
        let [small, large] = settings.boards.as_slice() else { panic!("{:?}", settings.boards) };
        assert_eq!(
            (small.replay.to_string(), large.replay.to_string()),
            ("http://hex-4:7001".into(), "http://hex-7:7001".into())
        );
        assert_eq!((large.architecture.height, large.architecture.game.as_str()), (7, "hex-7"));
        let of_small = Architecture { channels: settings.architecture().channels, ..small.architecture.clone() };
        assert_eq!(settings.architecture().on(small.architecture.board()), Ok(of_small));
    }

    #[test]
    fn boards_that_one_network_cannot_learn_together_are_refused_by_their_key() {
        let refused = |boards: &[&str], set: fn(&mut Config)| settings(boards, set).map(drop).unwrap_err();
        for (error, key, reason) in [
            (refused(&["hex-5"], |_| {}), "learner.boards", "lists hex-5 twice"),
            (refused(&["hex-4", "hex-4"], |_| {}), "learner.boards", "lists hex-4 twice"),
            (refused(&["go-5"], |_| {}), "learner.boards", "another game than run.game (hex-5)"),
            (refused(&["hex-40"], |_| {}), "learner.boards", "hex-40"),
            (refused(&["hex-4"], |config| config.network.heads = HeadKind::Flattened), "network.heads", "pooled"),
            (refused(&["hex-4"], |config| config.network.attention = 1), "network.attention", "set it to 0"),
            (
                refused(&["hex-4"], |config| config.run.boards = vec!["hex-4".into(), "hex-7".into()]),
                "learner.boards",
                "hex-7",
            ),
            (refused(&["hex-5"], |config| config.run.boards = vec!["hex-5".into()]), "run.boards", "lists hex-5 twice"),
            (
                refused(&["hex-4"], |config| config.learner.boards[0].replay = "hex".into()),
                "learner.boards",
                "http://host:port",
            ),
        ] {
            assert!(error.starts_with(key) && error.contains(reason), "{error}");
        }
    }

    #[test]
    fn boards_have_equal_weights_unless_each_has_its_own() {
        let weights = |weights: &[f64]| {
            let set = |config: &mut Config| config.learner.board_weights = weights.to_vec();
            settings(&["hex-4"], set).map(|settings| settings.board_weights)
        };
        assert_eq!(weights(&[]), Ok(vec![1.0, 1.0]));
        assert_eq!(weights(&[3.0, 0.5]), Ok(vec![3.0, 0.5]));
        for wrong in [&[1.0][..], &[1.0, 1.0, 1.0], &[1.0, 0.0], &[1.0, f64::NAN]] {
            assert!(weights(wrong).unwrap_err().starts_with("learner.board_weights"), "{wrong:?}");
        }
    }
}
