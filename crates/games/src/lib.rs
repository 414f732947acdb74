//! The rules of all trainable games and environments, and their registry.
//!
//! [`TicTacToe`], [`ConnectFour`], [`Hex`], [`Othello`], [`Breakthrough`], [`Gomoku`], [`Go`] and [`Chess`] are board
//! games. [`Catch`], [`CartPole`], [`Pendulum`], [`Breakout`], [`TwentyFortyEight`], [`KeysAndDoors`] and
//! [`MarketMaking`] are environments: for one player, and scored by rewards. All implement [`game::Game`], each in a
//! separate module, which also describes the game in an [`Entry`]: name, [`Variants`], preset, [`SolvedPositions`].
//! [`GAMES`] lists the entries; help texts, errors, the arena and every process read them. [`GameKind`] selects a game
//! by name, [`AnyGame`] holds the rules of any game, [`with_game!`] compiles code for the concrete rules where that is
//! faster, and [`preset`] returns the preset of a run. The guides are `docs/games.md` and `docs/environments.md`.

mod bitboard;
pub mod breakout;
pub mod breakthrough;
pub mod cartpole;
pub mod catch;
mod cells;
pub mod chess;
pub mod connect_four;
pub mod connect_four_boards;
mod entry;
mod environment;
mod generator;
pub mod go;
pub mod gomoku;
mod grid;
pub mod hex;
pub mod keys_and_doors;
pub mod market_making;
pub mod othello;
mod past;
pub mod pendulum;
pub mod recorded;
#[macro_use]
mod registry;
mod side;
pub mod tic_tac_toe;
pub mod twenty_forty_eight;

pub use entry::{BoardSize, Boards, Entry, Error, Exhaustive, Sizes, SolvedPositions, Variants};
pub use generator::Generator;
pub use recorded::Recorded;
pub use side::Side;

registry! { $
    // Two players, searched by the rules, in positions of a few words: decision 0077.
    own {
        tic_tac_toe::TicTacToe,
        connect_four::ConnectFour,
        connect_four_boards::ConnectFourBoards { size: connect_four_boards::Size },
        hex::Hex { size: hex::Size },
        othello::Othello { size: othello::Size },
        breakthrough::Breakthrough { size: breakthrough::Size },
        gomoku::Gomoku { size: gomoku::Size },
    }
    any {
        go::Go { size: go::Size } in Box,
        chess::Chess in Box,
        catch::Catch,
        cartpole::CartPole { version: cartpole::Version },
        pendulum::Pendulum { torques: pendulum::Torques },
        breakout::Breakout { sticky: breakout::StickyActions },
        twenty_forty_eight::TwentyFortyEight,
        keys_and_doors::KeysAndDoors { size: keys_and_doors::Size },
        market_making::MarketMaking,
    }
}

// Uses macros that `registry!` defines.
mod any;

/// Returns the preset of the game with this name: TOML with the lowest precedence of all configuration sources.
///
/// # Errors
/// [`Error`] if no game has this name.
pub fn preset(game: &str) -> Result<&'static str, Error> {
    if is_outside(game) {
        return Ok(recorded::ENTRY.preset);
    }
    Ok(game.parse::<GameKind>()?.entry().preset)
}

/// Returns the game of a stored trajectory. An environment outside this program has no limits on actions and steps, and
/// actions are shown as numbers.
///
/// # Errors
/// [`Error`] if no game has this name.
pub fn stored(name: &str) -> Result<GameKind, Error> {
    if !is_outside(name) {
        return name.parse();
    }
    let frame = game::ObservationShape { planes: 1, height: 1, width: 1 };
    let (actions, steps_max, range) = (u16::MAX.into(), usize::MAX, game::ObservationRange::Finite);
    let described = recorded::Described { name: name.to_owned(), actions, frame, stack: 1, range, steps_max };
    described.environment().map(GameKind::Recorded).ok_or_else(|| Error::Undescribed { name: name.to_owned() })
}

/// Returns true for the name of an environment outside this program: `gym:LunarLander-v3`.
#[must_use]
pub fn is_outside(name: &str) -> bool {
    name.strip_prefix(recorded::PREFIX).is_some_and(|environment| !environment.is_empty())
}

/// Lists the names of all games, `tic_tac_toe, connect_four, hex-3 to hex-19`, and the name pattern of environments
/// outside this program.
#[must_use]
pub fn names() -> String {
    GAMES.iter().chain([&&recorded::ENTRY]).map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

/// Returns `name` if a run can have a game with this name.
///
/// # Errors
/// [`Error`] if no game has this name.
pub fn check_name(name: &str) -> Result<String, Error> {
    preset(name).map(|_| name.to_owned())
}

/// Minimum similarity between a name and the suggestion.
const SIMILARITY_MIN: f64 = 0.4;

/// Returns the most similar game name in backticks; `None` if no name is similar. Case and separators are ignored.
fn nearest(name: &str) -> Option<String> {
    let plain = |text: &str| text.chars().filter(|c| c.is_alphanumeric()).collect::<String>().to_lowercase();
    let wanted = plain(name);
    let similarity = |(resembled, _): &(String, String)| {
        if wanted.is_empty() { 0.0 } else { strsim::normalized_damerau_levenshtein(&wanted, &plain(resembled)) }
    };
    let candidates = GAMES.iter().flat_map(|entry| entry.suggestions());
    let quoted = candidates.map(|(resembled, name)| (resembled, format!("`{name}`")));
    let outside =
        ["gym", "gymnasium"].map(|name| (name.to_owned(), "`gym:NAME`, such as `gym:CartPole-v1`".to_owned()));
    let nearest = quoted.chain(outside).max_by(|a, b| similarity(a).total_cmp(&similarity(b)))?;
    (similarity(&nearest) >= SIMILARITY_MIN).then_some(nearest.1)
}

#[cfg(test)]
mod tests {
    use game::{Game, Scoring};

    use super::*;

    /// Returns every board in `Entry::examples`, with the entry.
    fn examples() -> impl Iterator<Item = (&'static Entry, String)> {
        GAMES.iter().flat_map(|&entry| entry.examples().map(move |name| (entry, name)))
    }

    #[test]
    fn the_name_of_every_registered_game_parses_to_it_and_equals_its_spec_name() {
        for (entry, name) in examples() {
            let kind: GameKind = name.parse().unwrap();
            assert_eq!(kind.to_string(), name);
            assert_eq!(kind.entry(), entry);
            assert_eq!(with_game!(kind, |game| game.spec().name.clone()), name);
        }
    }

    #[test]
    fn games_that_are_scored_by_rewards_have_no_instance_of_their_own() {
        for (_, name) in examples() {
            let kind: GameKind = name.parse().unwrap();
            let rules = with_game!(kind, |game| (std::any::type_name_of_val(&game), game.spec().scoring));
            let is_any = rules.0 == std::any::type_name::<AnyGame>();
            assert!(is_any || rules.1 == Scoring::Outcome, "{name} has an instance: {rules:?}");
        }
    }

    #[test]
    fn names_of_games_differ_and_are_listed_by_the_guide() {
        let guide = include_str!("../../../docs/games.md");
        for (index, entry) in GAMES.iter().enumerate() {
            let is_registered = |other: &&Entry| other.to_string() == entry.to_string();
            assert!(!GAMES[..index].iter().any(is_registered), "{entry} is registered twice");
            assert!(guide.contains(&format!("`{}", entry.name)), "docs/games.md does not list {}", entry.name);
            let one_form = entry.variants == Variants::One;
            assert!(entry.solved.is_none() || one_form, "{}: solved positions are of one form", entry.name);
        }
    }

    #[test]
    fn an_unknown_name_is_refused_with_the_nearest_name_and_all_names() {
        let gym = Some("`gym:NAME`, such as `gym:CartPole-v1`");
        let cases = [
            ("conect-four", Some("`connect_four`")),
            ("TicTacToe", Some("`tic_tac_toe`")),
            ("hex", Some("`hex-11`")),
            ("hex5", Some("`hex-5`")),
            ("Go_13", Some("`go-13`")),
            ("othello", Some("`othello-8`")),
            ("cartpole", Some("`cartpole-v1`")),
            ("gym", gym),
            ("gym:", gym),
            ("Gymnasium", gym),
            ("", None),
            ("--", None),
            ("quux", None),
        ];
        for (name, expected) in cases {
            let error = name.parse::<GameKind>().unwrap_err();
            assert_eq!(
                error,
                Error::UnknownGame { name: name.into(), nearest: expected.map(str::to_owned) },
                "{error}"
            );
        }
        let error = "".parse::<GameKind>().unwrap_err().to_string();
        assert!(error.starts_with("`` is not a game; games are tic_tac_toe, "), "{error}");
        assert_eq!(
            preset("conect_four").unwrap_err().to_string(),
            "`conect_four` is not a game (did you mean `connect_four`?); \
             games are tic_tac_toe, connect_four, connect_four-COLUMNSxROWS (4 to 9 columns, at least 4 rows, \
             columns * (rows + 1) at most 64), hex-3 to hex-19, othello-6, othello-8, \
             breakthrough-5 to breakthrough-8, gomoku-7 to gomoku-20, go-5 to go-19, chess, catch, cartpole-v0, \
             cartpole-v1, pendulum-5 to pendulum-11, breakout, breakout-deterministic, 2048, \
             keys_and_doors-5 to keys_and_doors-16, market_making, gym:NAME"
        );
    }

    #[test]
    fn the_name_of_an_environment_outside_has_a_preset_and_does_not_describe_it() {
        assert_eq!(check_name("gym:LunarLander-v3").as_deref(), Ok("gym:LunarLander-v3"));
        assert!(preset("gym:LunarLander-v3").unwrap().contains("muzero"));
        assert!(check_name("gym:").is_err());
        let error = "gym:LunarLander-v3".parse::<GameKind>().unwrap_err();
        assert_eq!(error, Error::Undescribed { name: "gym:LunarLander-v3".into() });
    }

    /// Search trees hold many positions, and copy one for each node.
    #[test]
    fn a_position_of_any_game_is_small() {
        assert!(size_of::<AnyPosition>() <= 144, "{} bytes", size_of::<AnyPosition>());
        let boxed = |name: &str| name.parse::<GameKind>().unwrap().rules().start().boxed_bytes();
        assert_eq!((boxed("go-9"), boxed("hex-5")), (size_of::<go::Position>(), 0));
    }

    #[test]
    fn a_board_of_the_wrong_size_is_refused() {
        for name in ["hex-2", "hex-20", "hex-", "hex-011", "hex-+11", "hex-300", "hex-x"] {
            let message = name.parse::<GameKind>().unwrap_err().to_string();
            assert_eq!(message, format!("`{name}` is not a size of hex; sizes are hex-3 to hex-19"));
        }
    }
}
