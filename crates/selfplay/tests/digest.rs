//! Checks that equal seeds play bitwise equal games: refactoring must not change the digests of whole episodes.
//!
//! An intentional change of the games played by self-play must update the digests.
#![cfg(target_arch = "x86_64")]

use experience::StepKind;
use game::{Game, Outcome, Player, mix};
use games::{ConnectFour, Hex, TicTacToe};
use inference::{Cache, Hashing, WeightsCache};
use selfplay::{
    EarlyStop, Ending, Episodes, FinishedEpisode, Openings, Resignation, Resigned, SearchAlgorithm, SearchSettings,
    Settings, Temperature, TemperatureDecay,
};

/// Number of episodes in the digest for each slot.
const PER_SLOT: u64 = 3;

/// Returns settings with playout caps, openings, resignation and subtree reuse. Fast pUCT searches stop early at the
/// late temperature.
fn settings(algorithm: SearchAlgorithm) -> Settings {
    Settings {
        games: 6,
        search: SearchSettings { algorithm, early_stop: EarlyStop::Decided, ..SearchSettings::default() },
        full_simulations: 40,
        fast_simulations: 12,
        full_search_probability: 0.4,
        temperature: Temperature { early: 1.0, late: 0.0, decay: TemperatureDecay::Cut { plies: 6 } },
        openings: Openings { probability: 0.5, random_plies_max: 4, ..Openings::default() },
        resignation: Resignation::Below {
            threshold: -0.5,
            consecutive: 2,
            calibration_share: 0.3,
            resigned: Resigned::PlayedOut,
        },
        ..Settings::default()
    }
}

/// Returns the digest of the first [`PER_SLOT`] episodes of every slot, ordered by slot and number.
fn digest<G: Game>(game: G, settings: Settings, cache: Option<WeightsCache<'_>>) -> u64 {
    let mut evaluator = Hashing::new(game.spec().observation, 3);
    let wanted = settings.games * PER_SLOT as usize;
    let mut episodes = Episodes::new(game, settings, 1.0, 5);
    let mut finished: Vec<FinishedEpisode> = Vec::new();
    while finished.len() < wanted {
        episodes.advance(&mut evaluator, cache).expect("the evaluator does not fail");
        finished.extend(episodes.drain_finished().filter(|episode| episode.number < PER_SLOT));
    }
    finished.sort_by_key(|episode| (episode.slot, episode.number));
    finished.iter().fold(0, add)
}

/// Folds an episode into a digest, field by field: `digest ← mix(digest ^ word)` for each word. A float is folded as
/// the bit pattern.
///
/// The words are: slot, number, steps; for each step action, reward, weights version, kind (0 opening, 1 fast, 2 full),
/// after a fast or full search the value, and after a full search the number of policy entries, then action and
/// probability of each entry; the outcome (0 finished or truncated, 1 drawn, 2 the first player won, 3 the second); the
/// ending (0 by the rules, 1 resigned).
fn add(digest: u64, episode: &FinishedEpisode) -> u64 {
    let mut words = vec![episode.slot as u64, episode.number, episode.steps.len() as u64];
    let bits = |x: f32| u64::from(x.to_bits());
    for step in &episode.steps {
        words.extend([u64::from(step.action.0), bits(step.reward), step.weights_version.0]);
        match &step.kind {
            StepKind::Opening => words.push(0),
            StepKind::Fast { value } => words.extend([1, bits(*value)]),
            StepKind::Full { policy, value } => {
                words.extend([2, bits(*value), policy.len() as u64]);
                words.extend(policy.iter().flat_map(|entry| [u64::from(entry.action.0), bits(entry.probability)]));
            }
        }
    }
    words.push(match episode.facts.outcome {
        Outcome::Finished | Outcome::Truncated => 0,
        Outcome::Draw => 1,
        Outcome::Win(Player::First) => 2,
        Outcome::Win(Player::Second) => 3,
    });
    words.push(match episode.ending {
        Ending::Rules => 0,
        Ending::Resignation => 1,
    });
    words.into_iter().fold(digest, |digest, word| mix(digest ^ word))
}

/// Returns the digests of tic-tac-toe, Connect Four and Hex 5x5.
fn digests(settings: &Settings) -> [u64; 3] {
    let cache = Cache::new(10_000);
    [
        digest(TicTacToe::new(), settings.clone(), None),
        digest(ConnectFour::new(), settings.clone(), Some(cache.of(1))),
        digest(Hex::new(games::hex::Size::new(5).expect("a size of Hex")), settings.clone(), None),
    ]
}

#[test]
fn puct_plays_the_recorded_games() {
    let recorded = [0xB81E_E01B_7CB3_097D, 0x286A_E053_7717_5769, 0xA7CD_A294_D7BE_FB4F];
    assert_eq!(digests(&settings(SearchAlgorithm::Puct)), recorded);
}

#[test]
fn gumbel_plays_the_recorded_games() {
    let recorded = [0x89ED_579F_7405_87DA, 0x1C70_2935_8508_C3F9, 0xE633_CCC3_2F44_86BC];
    assert_eq!(digests(&settings(SearchAlgorithm::GUMBEL)), recorded);
}

#[test]
fn several_leaves_of_a_game_in_a_batch_play_the_recorded_games() {
    let digests = |algorithm| digests(&Settings { leaves_per_tree: 3, ..settings(algorithm) });
    let recorded = [
        [0xE9F9_2936_2A66_5710, 0x9225_BE79_4B12_EC01, 0x3DB1_1553_6022_D5A6],
        [0x5694_8329_97B0_5401, 0xCD67_760B_1762_13E2, 0xC87A_8868_D42F_302C],
    ];
    assert_eq!([SearchAlgorithm::Puct, SearchAlgorithm::GUMBEL].map(digests), recorded);
}
