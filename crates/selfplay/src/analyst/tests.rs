use game::{Action, Game};
use games::connect_four::ConnectFour;
use inference::testing::{Fault, Faulty, Hashing};
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;
use search::{EarlyStop, Proven, RootPolicy, Settings as SearchSettings};

use super::Analyst;
use crate::{AnalysisSettings, analyse};

const SEED: u64 = 3;

fn rng() -> ChaCha8Rng {
    ChaCha8Rng::seed_from_u64(SEED)
}

fn analyst(moves: &[u16]) -> Analyst<ConnectFour> {
    let game = ConnectFour::new();
    let position = game.replay(&moves.iter().copied().map(Action).collect::<Vec<_>>()).unwrap();
    Analyst::new(game, position, &SearchSettings::default(), 1)
}

fn hashing() -> Hashing {
    Hashing::new(ConnectFour::new().spec().observation, SEED)
}

#[test]
fn a_search_in_parts_is_the_search_in_one_piece() {
    let mut analyst = analyst(&[3, 3]);
    for simulations in [1, 7, 8, 50, 200] {
        analyst.search_to(simulations, &mut hashing(), &mut rng()).unwrap();
        assert_eq!(analyst.simulations(), simulations);
    }
    let game = ConnectFour::new();
    let position = game.replay(&[Action(3), Action(3)]).unwrap();
    let search = SearchSettings { root: RootPolicy::Puct, early_stop: EarlyStop::Never, ..SearchSettings::default() };
    let settings = AnalysisSettings { simulations: 200, search, leaves_per_tree: 1, batch: 1 };
    let whole = analyse(&game, &[position], &settings, &mut hashing(), &mut rng()).unwrap();
    assert_eq!(analyst.analysis().as_ref(), whole.first());
}

#[test]
fn a_position_that_is_proven_is_searched_no_further() {
    // Three in the first column, and to move.
    let mut analyst = analyst(&[0, 1, 0, 1, 0, 1]);
    analyst.search_to(100_000, &mut hashing(), &mut rng()).unwrap();
    assert!(analyst.simulations() < 1000, "{} simulations", analyst.simulations());
    let analysis = analyst.analysis().unwrap();
    assert_eq!((analysis.best, analysis.proven), (Action(0), Proven::Win));
}

#[test]
fn an_evaluator_that_fails_loses_nothing_of_what_was_searched() {
    let mut faulty = Faulty::new(ConnectFour::new().spec().observation, Fault::Backend, 20);
    let mut analyst = analyst(&[]);
    assert!(analyst.analysis().is_none());
    assert!(analyst.search_to(100, &mut faulty, &mut rng()).is_err());
    let before = analyst.simulations();
    assert!(before > 10, "{before} simulations");
    analyst.search_to(before + 5, &mut hashing(), &mut rng()).unwrap();
    assert_eq!(analyst.simulations(), before + 5);
}
