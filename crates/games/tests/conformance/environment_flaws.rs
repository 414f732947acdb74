//! Tests of the suite's checks of environments; each environment violates the contract in one way.

use std::sync::atomic::{AtomicU32, Ordering};

use game::{
    Action, Chance, Dynamics, Error, Game, ObservationRange, ObservationShape, Outcome, Player, Players, Scoring, Spec,
    Symmetry, mix,
};

use super::{all_actions, run};

/// The fault of a variant of [`Walk`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Flaw {
    None,
    SeedIgnored,
    ChanceStopsAtTheStart,
    HiddenState,
    StartOfAnotherSeed,
    RewardInfinite,
    ObservationInfinite,
    EndsByOutcome,
    TruncatedEarly,
    HashIgnoresGenerator,
    SeveralSymmetries,
    /// No flaw, but the rules know the distribution of chance, as in the variants below.
    NoneOfChance,
    ProbabilitiesOfOtherChances,
    ProbabilitiesWithoutSum,
    OutcomeMissing,
    GeneratorKeptByOutcome,
}

/// A walk on the integers: an action moves by one to either side, and chance may move by one more. The walk ends at a
/// distance of 4, and is truncated after 12 steps.
#[derive(Debug, Clone)]
struct Walk {
    flaw: Flaw,
    spec: Spec,
    symmetries: Vec<Symmetry>,
}

#[derive(Debug, Clone, PartialEq)]
struct Place {
    at: i16,
    plies: usize,
    generator: u64,
}

const STEPS: usize = 12;
const END: i16 = 4;

/// State outside a position, for the flaw of a hidden state.
static HIDDEN: AtomicU32 = AtomicU32::new(0);

impl Walk {
    fn new(flaw: Flaw) -> Self {
        let observation = ObservationShape { planes: 2, height: 1, width: 1 };
        let spec = Spec {
            name: "walk".into(),
            players: Players::One,
            actions: 2,
            observation,
            observation_range: ObservationRange::Finite,
            scoring: Scoring::Rewards,
            dynamics: Dynamics::Stochastic,
            recording: None,
            max_plies: STEPS,
        };
        let count = if flaw == Flaw::SeveralSymmetries { 2 } else { 1 };
        Self { flaw, spec, symmetries: vec![Symmetry::identity(observation, 2); count] }
    }

    fn is(&self, flaw: Flaw) -> bool {
        self.flaw == flaw
    }
}

impl Game for Walk {
    type Position = Place;

    fn spec(&self) -> &Spec {
        &self.spec
    }

    fn start(&self) -> Place {
        self.start_from(u64::from(self.is(Flaw::StartOfAnotherSeed)))
    }

    fn start_from(&self, seed: u64) -> Place {
        let generator = if self.is(Flaw::SeedIgnored) { 0 } else { mix(seed) };
        Place { at: i16::from(generator.is_multiple_of(2)), plies: 0, generator }
    }

    fn to_move(&self, _: &Place) -> Player {
        Player::First
    }

    fn legal_actions(&self, position: &Place, actions: &mut Vec<Action>) {
        actions.clear();
        actions.extend(all_actions(2).filter(|&action| self.is_legal(position, action)));
    }

    fn is_legal(&self, position: &Place, action: Action) -> bool {
        action.index() < 2 && self.outcome(position).is_none()
    }

    fn play(&self, position: &mut Place, action: Action) -> f32 {
        position.plies += 1;
        position.generator = mix(position.generator);
        let side = if action.0 == 0 { -1 } else { 1 };
        let mut chance = i16::from(position.generator & 4 == 0);
        if self.is(Flaw::ChanceStopsAtTheStart) {
            chance = 0;
        }
        if self.is(Flaw::HiddenState) {
            chance = i16::from(HIDDEN.fetch_add(1, Ordering::Relaxed).is_multiple_of(3));
        }
        position.at += side * (1 + chance);
        let is_infinite = self.is(Flaw::RewardInfinite) && position.at < 0;
        if is_infinite { f32::INFINITY } else { f32::from(position.at) }
    }

    fn knows_chances(&self) -> bool {
        use Flaw::{GeneratorKeptByOutcome, NoneOfChance, OutcomeMissing};
        use Flaw::{ProbabilitiesOfOtherChances, ProbabilitiesWithoutSum};
        let known = [
            NoneOfChance,
            ProbabilitiesOfOtherChances,
            ProbabilitiesWithoutSum,
            OutcomeMissing,
            GeneratorKeptByOutcome,
        ];
        known.contains(&self.flaw)
    }

    /// Outcome 1 moves by one more.
    fn chances(&self, _: &Place, _: Action, chances: &mut Vec<Chance>) {
        let probabilities: &[f32] = match self.flaw {
            Flaw::ProbabilitiesOfOtherChances => &[0.6, 0.4],
            Flaw::ProbabilitiesWithoutSum => &[0.5, 0.4],
            Flaw::OutcomeMissing => &[1.0],
            _ => &[0.5, 0.5],
        };
        chances.clear();
        chances.extend((0..).zip(probabilities).map(|(outcome, &probability)| Chance { outcome, probability }));
    }

    fn play_chance(&self, position: &mut Place, action: Action, outcome: u16) -> f32 {
        position.plies += 1;
        if !self.is(Flaw::GeneratorKeptByOutcome) {
            position.generator = mix(position.generator);
        }
        let side = if action.0 == 0 { -1 } else { 1 };
        position.at += side * (1 + i16::from(outcome == 1));
        f32::from(position.at)
    }

    fn outcome(&self, position: &Place) -> Option<Outcome> {
        if position.at.abs() >= END {
            let by_outcome = self.is(Flaw::EndsByOutcome);
            return Some(if by_outcome { Outcome::Win(Player::First) } else { Outcome::Finished });
        }
        let steps = if self.is(Flaw::TruncatedEarly) { 3 } else { STEPS };
        (position.plies >= steps).then_some(Outcome::Truncated)
    }

    fn observe(&self, position: &Place, planes: &mut [f32]) {
        let scale = if self.is(Flaw::ObservationInfinite) { 0.0 } else { 0.5 };
        planes[0] = f32::from(position.at) / scale;
        planes[1] = f32::from(u8::try_from(position.plies).expect("a short walk"));
    }

    fn hash(&self, position: &Place) -> u64 {
        let generator = if self.is(Flaw::HashIgnoresGenerator) { 0 } else { position.generator };
        mix(mix(generator ^ position.plies as u64) ^ u64::from(position.at.cast_unsigned()))
    }

    fn symmetries(&self) -> &[Symmetry] {
        &self.symmetries
    }

    fn image(&self, position: &Place, _: usize) -> Place {
        position.clone()
    }

    fn action_name(&self, _: &Place, action: Action) -> String {
        ["left", "right"][action.index()].into()
    }

    fn parse_action(&self, _: &Place, text: &str) -> Result<Action, Error> {
        match text {
            "left" => Ok(Action(0)),
            "right" => Ok(Action(1)),
            _ => Err(Error::Notation { text: text.into(), expected: "left or right".into() }),
        }
    }

    fn render(&self, position: &Place) -> String {
        position.at.to_string()
    }
}

fn check(flaw: Flaw, expected: &str) {
    let result = std::panic::catch_unwind(|| run(&Walk::new(flaw), 1));
    let payload = result.expect_err("the suite finds the flaw");
    let verdict = payload.downcast_ref::<String>().expect("a message").lines().next().expect("a line");
    assert!(verdict.contains(expected), "{flaw:?} is reported as: {verdict}");
}

#[test]
fn an_environment_without_flaws_conforms() {
    run(&Walk::new(Flaw::None), 1);
}

#[test]
fn flaws_of_seeds_are_found() {
    check(Flaw::SeedIgnored, "no episode depends on its seed");
    check(Flaw::ChanceStopsAtTheStart, "stochastic, but no action has two results");
    check(Flaw::HiddenState, "its image 0");
    check(Flaw::StartOfAnotherSeed, "the start is not that of the episode with seed 0");
    check(Flaw::SeveralSymmetries, "the identity alone");
}

#[test]
fn flaws_of_chances_are_found() {
    run(&Walk::new(Flaw::NoneOfChance), 1);
    check(Flaw::ProbabilitiesOfOtherChances, "instead of 0.");
    check(Flaw::ProbabilitiesWithoutSum, "sum to 0.9");
    check(Flaw::OutcomeMissing, "0 outcomes of");
    check(Flaw::GeneratorKeptByOutcome, "0 outcomes of");
}

#[test]
fn flaws_of_rewards_and_observations_are_found() {
    check(Flaw::RewardInfinite, "the reward is inf");
    check(Flaw::ObservationInfinite, "not written whole with finite values");
}

#[test]
fn flaws_of_the_end_of_an_environment_are_found() {
    check(Flaw::EndsByOutcome, "a game scored by Rewards ends with Win(First)");
    check(Flaw::TruncatedEarly, "truncated after 3 of 12 plies");
}

#[test]
fn a_hash_without_the_generator_is_found() {
    check(Flaw::HashIgnoresGenerator, "equal hashes, and action");
}
