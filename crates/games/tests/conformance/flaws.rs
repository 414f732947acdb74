//! Tests of the suite itself; each game violates the contract in one way.

use game::{Action, Error, Game, HEURISTIC_MAX, ObservationShape, Outcome, Player, Spec, Symmetry};

use super::{all_actions, run};

/// The fault of a variant of [`Nim`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Flaw {
    None,
    LegalDescending,
    LegalKeepsOldEntries,
    IsLegalIgnoresPile,
    LegalAfterTheEnd,
    NoEnd,
    MaxPliesTooSmall,
    ObservationLeavesAGap,
    ObservationOutOfRange,
    HashIgnoresPile,
    HashIgnoresMover,
    HashIsConstant,
    FirstSymmetryNotIdentity,
    SymmetryNotPermutation,
    SymmetryOfActionsWrong,
    SymmetryOfCellsWrong,
    ImageOfNothing,
    NamesShared,
    NamesMisread,
    GarbageRead,
    MoveOutOfRangeRead,
    WinnerDependsOnPile,
    TryPlayTakesAnyway,
    NotRendered,
    HeuristicOfOnePile,
    HeuristicTooLarge,
}

/// Two piles of three: a move takes one to three from one pile, and the player who takes the last one wins. The
/// symmetry exchanges the piles.
#[derive(Debug, Clone)]
struct Nim {
    flaw: Flaw,
    spec: Spec,
    symmetries: Vec<Symmetry>,
}

#[derive(Debug, Clone, PartialEq)]
struct Piles {
    left: [u16; 2],
    plies: usize,
    last_pile: usize,
}

const TAKE_MAX: u16 = 3;

impl Nim {
    fn new(flaw: Flaw) -> Self {
        let observation = ObservationShape { planes: 2, height: 1, width: 2 };
        let max_plies = if flaw == Flaw::MaxPliesTooSmall { 4 } else { 6 };
        let spec = Spec::board("nim".into(), 6, observation, max_plies);
        let mut exchange = Symmetry { planes: vec![0, 1], cells: vec![1, 0], actions: vec![3, 4, 5, 0, 1, 2] };
        match flaw {
            Flaw::SymmetryNotPermutation => exchange.actions[0] = 4,
            Flaw::SymmetryOfActionsWrong => exchange.actions.swap(0, 1),
            Flaw::SymmetryOfCellsWrong => exchange.cells = vec![0, 1],
            _ => {}
        }
        let mut symmetries = vec![Symmetry::identity(observation, 6), exchange];
        if flaw == Flaw::FirstSymmetryNotIdentity {
            symmetries.reverse();
        }
        Self { flaw, spec, symmetries }
    }

    fn is(&self, flaw: Flaw) -> bool {
        self.flaw == flaw
    }
}

impl Game for Nim {
    type Position = Piles;

    fn spec(&self) -> &Spec {
        &self.spec
    }

    fn start(&self) -> Piles {
        Piles { left: [3, 3], plies: 0, last_pile: 0 }
    }

    fn to_move(&self, position: &Piles) -> Player {
        if position.plies.is_multiple_of(2) { Player::First } else { Player::Second }
    }

    fn legal_actions(&self, position: &Piles, actions: &mut Vec<Action>) {
        if !self.is(Flaw::LegalKeepsOldEntries) {
            actions.clear();
        }
        actions.extend(all_actions(6).filter(|&action| self.is_legal(position, action)));
        if self.is(Flaw::LegalDescending) {
            actions.reverse();
        }
        if self.is(Flaw::IsLegalIgnoresPile) || self.is(Flaw::LegalAfterTheEnd) {
            actions.retain(|action| action.0 % TAKE_MAX < position.left[action.index() / 3]);
        }
        if self.is(Flaw::LegalAfterTheEnd) && position.left == [0, 0] {
            actions.push(Action(0));
        }
    }

    fn is_legal(&self, position: &Piles, action: Action) -> bool {
        let Some(&left) = position.left.get(action.index() / 3) else { return false };
        match self.flaw {
            Flaw::IsLegalIgnoresPile => left > 0,
            Flaw::LegalAfterTheEnd if position.left == [0, 0] => action == Action(0),
            _ => action.0 % TAKE_MAX < left,
        }
    }

    fn play(&self, position: &mut Piles, action: Action) -> f32 {
        position.last_pile = action.index() / 3;
        let left = &mut position.left[action.index() / 3];
        *left = left.saturating_sub(action.0 % TAKE_MAX + 1);
        position.plies += 1;
        0.0
    }

    fn outcome(&self, position: &Piles) -> Option<Outcome> {
        if position.left != [0, 0] || self.is(Flaw::NoEnd) {
            return None;
        }
        let mover = self.to_move(position);
        let upside_down = self.is(Flaw::WinnerDependsOnPile) && position.last_pile == 1;
        Some(Outcome::Win(if upside_down { mover } else { mover.opponent() }))
    }

    fn observe(&self, position: &Piles, planes: &mut [f32]) {
        let scale = if self.is(Flaw::ObservationOutOfRange) { 1.0 } else { 3.0 };
        for (value, left) in planes.iter_mut().zip(position.left) {
            *value = f32::from(left) / scale;
        }
        let second = self.to_move(position).index();
        let gap = usize::from(self.is(Flaw::ObservationLeavesAGap));
        planes[2..4 - gap].fill(if second == 1 { 1.0 } else { 0.0 });
    }

    fn hash(&self, position: &Piles) -> u64 {
        let piles = position.left.map(u64::from);
        let mover = self.to_move(position).index() as u64;
        match self.flaw {
            Flaw::HashIsConstant => 7,
            Flaw::HashIgnoresPile => piles[0] * 7 + position.plies as u64 * 100,
            Flaw::HashIgnoresMover => piles[0] * 7 + piles[1],
            _ => piles[0] * 14 + piles[1] * 2 + mover,
        }
    }

    fn symmetries(&self) -> &[Symmetry] {
        &self.symmetries
    }

    fn image(&self, position: &Piles, symmetry: usize) -> Piles {
        let cells = if self.is(Flaw::ImageOfNothing) { &[0, 1] } else { self.symmetries[symmetry].cells.as_slice() };
        let left = std::array::from_fn(|pile| position.left[usize::from(cells[pile])]);
        Piles { left, ..position.clone() }
    }

    fn heuristic_value(&self, position: &Piles) -> i32 {
        let [first, second] = position.left.map(i32::from);
        match self.flaw {
            Flaw::HeuristicOfOnePile => first,
            Flaw::HeuristicTooLarge => HEURISTIC_MAX + 1,
            _ => first + second,
        }
    }

    fn action_name(&self, _: &Piles, action: Action) -> String {
        let pile = if self.is(Flaw::NamesShared) { 0 } else { action.0 / TAKE_MAX };
        format!("{}{}", ["left", "right"][usize::from(pile)], action.0 % TAKE_MAX + 1)
    }

    fn parse_action(&self, _: &Piles, text: &str) -> Result<Action, Error> {
        let error = Error::Notation { text: text.into(), expected: "left1 to right3".into() };
        if self.is(Flaw::GarbageRead) && text.is_empty() {
            return Ok(Action(0));
        }
        if self.is(Flaw::MoveOutOfRangeRead) && text == "99999999999999999999999" {
            return Ok(Action(99));
        }
        let names = all_actions(6)
            .map(|action| (format!("{}{}", ["left", "right"][action.index() / 3], action.0 % TAKE_MAX + 1), action));
        let action = names.into_iter().find(|(name, _)| name == text).map(|(_, action)| action).ok_or(error)?;
        Ok(if self.is(Flaw::NamesMisread) { Action(5 - action.0) } else { action })
    }

    fn render(&self, position: &Piles) -> String {
        if self.is(Flaw::NotRendered) { String::new() } else { format!("{:?}", position.left) }
    }

    fn try_play(&self, position: &mut Piles, action: Action) -> Result<f32, Error> {
        let legal = self.is_legal(position, action);
        if legal || self.is(Flaw::TryPlayTakesAnyway) {
            let reward = self.play(position, action);
            return if legal { Ok(reward) } else { Err(Error::Illegal { game: "nim".into(), action }) };
        }
        Err(Error::Illegal { game: "nim".into(), action })
    }
}

/// Runs the suite on a flawed game; returns the report.
fn verdict(flaw: Flaw) -> String {
    let result = std::panic::catch_unwind(|| run(&Nim::new(flaw), 1));
    let payload = result.expect_err("the suite finds the flaw");
    payload.downcast_ref::<String>().expect("a message").lines().next().expect("a line").to_owned()
}

fn check(flaw: Flaw, expected: &str) {
    let verdict = verdict(flaw);
    assert!(verdict.contains(expected), "{flaw:?} is reported as: {verdict}");
}

#[test]
fn a_game_without_flaws_conforms() {
    run(&Nim::new(Flaw::None), 1);
}

#[test]
fn a_contract_violation_is_reported_with_seed_and_actions() {
    let verdict = verdict(Flaw::LegalDescending);
    let (start, report) = verdict.split_once(", after actions ").unwrap();
    let seed = start.strip_prefix("nim, seed ").unwrap();
    assert!(seed.parse::<u64>().is_ok(), "{verdict}");
    assert_eq!(
        report,
        "[]: legal actions are not ascending: [Action(5), Action(4), Action(3), Action(2), Action(1), Action(0)]"
    );
}

#[test]
fn flaws_of_legal_actions_are_found() {
    check(Flaw::LegalKeepsOldEntries, "legal actions are not ascending");
    check(Flaw::IsLegalIgnoresPile, "is listed: false, but is_legal returns true");
    check(Flaw::TryPlayTakesAnyway, "changes the position");
}

#[test]
fn flaws_of_the_end_are_found() {
    check(Flaw::LegalAfterTheEnd, "and 1 legal actions");
    check(Flaw::NoEnd, "outcome None, and 0 legal actions");
    check(Flaw::MaxPliesTooSmall, "the game goes on after max_plies = 4");
    check(Flaw::WinnerDependsOnPile, "symmetry 1 turns outcome");
}

#[test]
fn flaws_of_the_observation_are_found() {
    check(Flaw::ObservationLeavesAGap, "not written whole");
    check(Flaw::ObservationOutOfRange, "values in [0, 1]");
}

#[test]
fn flaws_of_the_hash_are_found() {
    check(Flaw::HashIgnoresPile, "two observations share the hash");
    check(Flaw::HashIgnoresMover, "share the hash");
    check(Flaw::HashIsConstant, "did not change the hash");
}

#[test]
fn flaws_of_symmetries_are_found() {
    check(Flaw::FirstSymmetryNotIdentity, "symmetry 0 is not the identity");
    check(Flaw::SymmetryNotPermutation, "actions of symmetry 1 are not a permutation of 0..6");
    check(Flaw::SymmetryOfActionsWrong, "symmetry 1 does not commute");
    check(Flaw::SymmetryOfCellsWrong, "symmetry 1 does not commute with observe");
    check(Flaw::ImageOfNothing, "the image under symmetry 1 is another position");
}

#[test]
fn flaws_of_the_heuristic_value_are_found() {
    check(Flaw::HeuristicOfOnePile, "the image under symmetry 1 has another heuristic value");
    check(Flaw::HeuristicTooLarge, "the heuristic value is 100001");
}

#[test]
fn flaws_of_notation_are_found() {
    check(Flaw::NamesShared, "which reads as");
    check(Flaw::NamesMisread, "which reads as");
    check(Flaw::GarbageRead, "\"\" reads as Ok(Action(0))");
    check(Flaw::MoveOutOfRangeRead, "which does not exist");
    check(Flaw::NotRendered, "nothing is rendered");
}
