//! Tests of ratings against closed forms, against a grid, and in extreme cases.

use super::{
    DISPERSION_WEIGHT, ELO_PER_UNIT, Model, NORMAL_95, Pairing, Prior, Rating, difference, expected_score, links,
    ln_sigmoid, rate,
};
use crate::ledger::Tally;

/// The first player has a rating of 0.
const FIRST: &[(usize, f64)] = &[(0, 0.0)];

/// A prior of negligible weight, because the closed forms below have none.
const FLAT: Prior = Prior { deviation_elo: 1e7 };

/// Returns a tally of openings won, shared and lost by `a`, with both games of each opening.
fn pairing(a: usize, b: usize, won: u64, shared: u64, lost: u64) -> Pairing {
    Pairing { a, b, tally: Tally { pairs: [lost, 0, shared, 0, won] } }
}

fn near(got: f64, expected: f64, tolerance: f64) {
    assert!((got - expected).abs() <= tolerance, "got {got}, expected {expected} ± {tolerance}");
}

/// The closed form of two players: θ = ln(score / (games − score)), with variance φ / (n p (1 − p)). φ is the
/// variance of pairs over the variance of independent games.
#[test]
fn two_players_have_the_closed_form() {
    for (won, shared, lost) in [(30, 0, 10), (7, 6, 27), (50, 0, 50), (1, 0, 99), (1, 200, 0)] {
        let rating = rate(2, FIRST, &[pairing(1, 0, won, shared, lost)], FLAT)[1];
        let n = 2.0 * (won + shared + lost) as f64;
        let [won, shared, lost] = [won, shared, lost].map(|pairs| pairs as f64);
        let p = (2.0 * won + shared) / n;
        near(rating.elo, 400.0 * (p / (1.0 - p)).log10(), 1e-4);
        let squares = won * (2.0 - 2.0 * p).powi(2) + shared * (1.0 - 2.0 * p).powi(2) + lost * (2.0 * p).powi(2);
        let dispersion = (DISPERSION_WEIGHT + squares) / (DISPERSION_WEIGHT + n * p * (1.0 - p));
        let half = NORMAL_95 * ELO_PER_UNIT * (dispersion / (n * p * (1.0 - p))).sqrt();
        near(rating.high - rating.elo, half, 1e-3);
        near(rating.elo - rating.low, half, 1e-3);
    }
}

/// No point on a fine grid is more likely than the ratings of three players.
#[test]
fn no_point_of_a_grid_is_more_likely_than_the_answer() {
    let pairings = [pairing(0, 1, 3, 2, 9), pairing(1, 2, 4, 0, 6), pairing(2, 0, 11, 1, 1)];
    let prior = Prior { deviation_elo: 400.0 };
    let ratings = rate(3, FIRST, &pairings, prior);
    let likelihood = |elo: [f64; 3]| -> f64 {
        let games = pairings.iter().map(|p| {
            let difference = (elo[p.a] - elo[p.b]) / ELO_PER_UNIT;
            let (won, lost) = (p.tally.points(), p.tally.reversed().points());
            won * ln_sigmoid(difference) + lost * ln_sigmoid(-difference)
        });
        let apart = |p: &Pairing| 0.5 * ((elo[p.a] - elo[p.b]) / prior.deviation_elo).powi(2);
        games.sum::<f64>() - pairings.iter().map(apart).sum::<f64>()
    };
    let best = likelihood([0.0, ratings[1].elo, ratings[2].elo]);
    let mut peak = (f64::NEG_INFINITY, 0.0, 0.0);
    for x in (-1000..=1000).step_by(5).map(f64::from) {
        for y in (-1000..=1000).step_by(5).map(f64::from) {
            let here = likelihood([0.0, x, y]);
            assert!(here <= best + 1e-9, "({x}, {y}) is more likely than {ratings:?}");
            if here > peak.0 {
                peak = (here, x, y);
            }
        }
    }
    near(ratings[1].elo, peak.1, 5.0);
    near(ratings[2].elo, peak.2, 5.0);
}

#[test]
fn the_gradient_is_the_slope_of_the_likelihood_with_its_prior() {
    let pairings = [pairing(0, 1, 12, 3, 8), pairing(1, 2, 2, 0, 9)];
    let model =
        Model { players: 3, fixed: FIRST, pairings: &pairings, links: links(3, FIRST, &pairings), precision: 0.7 };
    let strengths = [0.0, 0.8, -1.3];
    for player in 1..3 {
        let moved = |by: f64| {
            let mut moved = strengths;
            moved[player] += by;
            model.log_likelihood(&moved)
        };
        near(model.gradient(&strengths)[player], (moved(1e-4) - moved(-1e-4)) / 2e-4, 1e-6);
    }
}

#[test]
fn the_anchor_is_at_zero_and_all_shift_with_it() {
    let pairings = [pairing(0, 1, 12, 0, 8), pairing(1, 2, 12, 0, 8)];
    let (from_first, from_last) = (rate(3, FIRST, &pairings, FLAT), rate(3, &[(2, 0.0)], &pairings, FLAT));
    assert_eq!(from_first[0], Rating { elo: 0.0, low: 0.0, high: 0.0 });
    for (a, b) in from_first.iter().zip(&from_last) {
        near(a.elo - b.elo, from_first[2].elo, 1e-3);
    }
}

#[test]
fn known_ratings_hold_and_leave_only_the_noise_of_the_games_of_others() {
    // Expected scores of a player with 150 Elo: 0.5 and 0.7034.
    let fixed = [(0, 150.0), (2, 0.0)];
    let rating = |games| rate(3, &fixed, &[pairing(0, 2, 9, 0, 0), pairing(1, 0, games, 0, games)], FLAT);
    let ratings = rating(50);
    assert_eq!(ratings[0], Rating { elo: 150.0, low: 150.0, high: 150.0 });
    near(ratings[1].elo, 150.0, 1e-6);
    assert!(ratings[1].high < rate(3, &fixed[1..], &[pairing(1, 0, 50, 0, 50)], FLAT)[1].high, "{ratings:?}");
    near(rating(200)[1].high - 150.0, (ratings[1].high - 150.0) / 2.0, 2.0);
}

#[test]
fn a_difference_is_the_rating_over_the_other_player() {
    let pairings = [pairing(0, 1, 12, 3, 8), pairing(1, 2, 2, 0, 9), pairing(0, 2, 4, 1, 4)];
    let (found, expected) = (difference([2, 1], 3, FIRST, &pairings, FLAT), rate(3, &[(1, 0.0)], &pairings, FLAT)[2]);
    for (found, expected) in [(found.elo, expected.elo), (found.low, expected.low), (found.high, expected.high)] {
        near(found, expected, 1e-3);
    }
}

#[test]
fn ratings_over_the_first_player_agree_with_those_over_an_opponent() {
    let results = pairing(1, 0, 20, 5, 10);
    let [first, second] = Rating::over_first(2, &[results])[..] else { panic!("two players have two ratings") };
    let over_opponent = Rating::over_opponent(results.tally);
    assert_eq!(first.elo, 0.0);
    near(second.elo, over_opponent.elo, 1e-6);
    near(second.low, over_opponent.low, 1e-6);
}

#[test]
fn a_player_that_won_every_game_is_strong_and_finite_and_its_interval_is_wide() {
    let few = rate(2, FIRST, &[pairing(1, 0, 5, 0, 0)], Prior::WEAK)[1];
    let many = rate(2, FIRST, &[pairing(1, 0, 500, 0, 0)], Prior::WEAK)[1];
    assert!(few.elo > 200.0 && few.elo < many.elo && many.elo < 3000.0, "{few:?} {many:?}");
    assert!(few.high - few.low > 800.0, "{few:?}");
}

#[test]
fn a_player_without_games_has_the_interval_of_the_prior() {
    let idle = rate(3, FIRST, &[pairing(0, 1, 5, 0, 5)], Prior::WEAK)[2];
    near(idle.elo, 0.0, 1e-9);
    near(idle.high, NORMAL_95 * Prior::WEAK.deviation_elo, 1e-6);
}

/// Versions that lose few games do not change the ratings of the fixed players below.
#[test]
fn more_and_more_versions_do_not_move_the_ratings_below_them() {
    let ladder = [pairing(1, 0, 14, 0, 2), pairing(2, 1, 12, 0, 4)];
    let with = |versions: usize| {
        let of = |version: usize| {
            let below = if version == 3 { 2 } else { version - 1 };
            [pairing(version, 2, 16, 0, 0), pairing(version, below, 9, 0, 7)].into_iter().take(if below == 2 {
                1
            } else {
                2
            })
        };
        let pairings: Vec<Pairing> = ladder.into_iter().chain((3..3 + versions).flat_map(of)).collect();
        rate(3 + versions, FIRST, &pairings, Prior::WEAK)
    };
    let (few, many) = (with(2), with(100));
    for player in 1..3 {
        near(many[player].elo, few[player].elo, 0.01);
    }
    assert!(many[102].elo > many[3].elo);
}

#[test]
fn players_that_have_met_each_other_only_are_near_the_anchor_together() {
    let ratings = rate(4, FIRST, &[pairing(0, 1, 5, 0, 5), pairing(2, 3, 5, 0, 5)], Prior::WEAK);
    near(ratings[2].elo, 0.0, 1e-6);
    near(ratings[3].elo, 0.0, 1e-6);
    assert!(ratings[2].high > 2000.0, "{ratings:?}");
}

#[test]
fn the_weak_prior_moves_a_rating_of_forty_games_by_less_than_a_tenth_of_its_interval() {
    let pairings = [pairing(1, 0, 30, 0, 10)];
    let (flat, weak) = (rate(2, FIRST, &pairings, FLAT)[1], rate(2, FIRST, &pairings, Prior::WEAK)[1]);
    assert!((flat.elo - weak.elo).abs() < 0.1 * (flat.high - flat.low), "{flat:?} {weak:?}");
}

#[test]
fn more_games_make_the_interval_narrower_by_the_square_root() {
    let width = |factor: u64| {
        // The score is 0.6, and pairs have the variance of two independent games.
        let tally = Tally { pairs: [4, 0, 12, 0, 9].map(|pairs| pairs * factor) };
        let rating = rate(2, FIRST, &[Pairing { a: 1, b: 0, tally }], FLAT)[1];
        rating.high - rating.low
    };
    near(width(1) / width(4), 2.0, 1e-3);
}

/// The order determines which entries are stored.
#[test]
fn the_order_of_the_players_changes_no_rating() {
    let pairings: Vec<Pairing> = (3..40)
        .flat_map(|version| [pairing(version, version - 1, 9, 2, 5), pairing(version, version % 3, 8, 1, 2)])
        .collect();
    let ratings = rate(40, FIRST, &pairings, Prior::WEAK);
    for stride in [39, 7, 11] {
        let moved = |player: usize| player * stride % 40;
        let pairings: Vec<Pairing> = pairings.iter().map(|p| Pairing { a: moved(p.a), b: moved(p.b), ..*p }).collect();
        let others = rate(40, FIRST, &pairings, Prior::WEAK);
        for (player, rating) in ratings.iter().enumerate() {
            near(others[moved(player)].elo, rating.elo, 1e-6);
            near(others[moved(player)].low, rating.low, 1e-6);
        }
    }
}

#[test]
fn a_pairing_that_is_split_in_two_gives_the_same_ratings() {
    let whole = rate(2, FIRST, &[pairing(1, 0, 3, 0, 0)], Prior::WEAK);
    let split = rate(2, FIRST, &[pairing(1, 0, 1, 0, 0), pairing(0, 1, 0, 0, 2)], Prior::WEAK);
    near(split[1].elo, whole[1].elo, 1e-6);
    near(split[1].high, whole[1].high, 1e-6);
}

#[test]
fn the_prior_of_players_that_have_met_has_the_configured_width() {
    let met = rate(2, FIRST, &[pairing(1, 0, 0, 0, 0), pairing(0, 1, 0, 0, 0)], Prior::WEAK)[1];
    near(met.high, NORMAL_95 * Prior::WEAK.deviation_elo, 1e-6);
}

#[test]
fn openings_that_both_players_win_once_rate_them_as_equal() {
    let width = |tally: Tally| {
        let rating = rate(2, FIRST, &[Pairing { a: 1, b: 0, tally }], FLAT)[1];
        rating.high - rating.low
    };
    assert!(width(Tally { pairs: [0, 0, 50, 0, 0] }) < 0.5 * width(Tally { pairs: [25, 0, 0, 0, 25] }));
}

#[test]
fn a_hundred_players_in_a_chain_are_rated() {
    let pairings: Vec<Pairing> = (1..100).map(|player| pairing(player, player - 1, 15, 0, 5)).collect();
    let ratings = rate(100, FIRST, &pairings, FLAT);
    // Each player is ln 3 above the previous player.
    for (player, rating) in ratings.iter().enumerate() {
        near(rating.elo, player as f64 * 400.0 * 3_f64.log10(), 0.1);
    }
}

#[test]
fn four_hundred_points_are_odds_of_ten_to_one() {
    near(expected_score(1200.0, 800.0), 10.0 / 11.0, 1e-12);
}
