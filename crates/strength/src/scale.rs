//! Lists the strengths of opponents without a network, which were measured once.
//!
//! With these strengths, a version's interval shows only the noise of the version's games, and ratings from different
//! runs are on one scale. docs/benchmarks/search.md contains the command for the measurement. Start with [`elo`].

/// The opponents of each game by name, in Elo over random play.
const SCALES: &[(&str, &[(&str, f64)])] = &[
    (
        "connect_four",
        &[
            ("playouts-50", 680.0),
            ("playouts-200", 921.0),
            ("playouts-1000", 1119.0),
            ("alphabeta-2", 1185.0),
            ("alphabeta-4", 1264.0),
            ("alphabeta-6", 1311.0),
            ("alphabeta-8", 1368.0),
            ("alphabeta-10", 1468.0),
            ("alphabeta-12", 1522.0),
        ],
    ),
    (
        "othello-6",
        &[
            ("playouts-50", 441.0),
            ("alphabeta-2", 506.0),
            ("playouts-200", 581.0),
            ("alphabeta-4", 663.0),
            ("playouts-1000", 748.0),
        ],
    ),
    (
        "breakthrough-6",
        &[
            ("playouts-50", 1071.0),
            ("playouts-200", 1273.0),
            ("playouts-1000", 1445.0),
            ("alphabeta-2", 1911.0),
            ("alphabeta-4", 2111.0),
        ],
    ),
    ("hex-7", &[("playouts-50", 116.0), ("playouts-200", 1052.0), ("playouts-1000", 1716.0)]),
    ("go-9", &[("playouts-50", 257.0), ("playouts-200", 846.0), ("playouts-1000", 1436.0)]),
];

/// Returns the strength of the player with this name in a game, in Elo over random play; `None` if it is not known.
pub fn elo(game: &str, player: &str) -> Option<f64> {
    if player == "random" {
        return Some(0.0);
    }
    let (_, scale) = SCALES.iter().find(|(name, _)| *name == game)?;
    scale.iter().find(|(name, _)| *name == player).map(|&(_, elo)| elo)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_known_strength_is_of_a_player_in_a_game_and_random_play_is_at_zero() {
        for (game, scale) in SCALES {
            assert!(game.parse::<games::GameKind>().is_ok(), "{game}");
            for &(name, strength) in *scale {
                assert_eq!(elo(game, name), Some(strength), "{game}, {name}");
            }
        }
        assert_eq!([elo("hex-5", "random"), elo("hex-5", "playouts-50")], [Some(0.0), None]);
    }
}
