//! Search for the soonest win of one player, the attacker, against the other, the defender.
//!
//! The attacker connects the top with the bottom; for the other player the board is mirrored. A first search finds out
//! which player wins. A second one finds out whether that player, as the attacker, wins with at most k more stones, and
//! with k from 1 upwards the first success is the soonest win: the defender delays it as long as possible.
//!
//! A win has a carrier, the cells that the winner needs for it. A reply outside the carrier changes nothing, so that
//! only replies in the intersection of all carriers found so far, the mustplay region, are searched (Hayward et al.,
//! "Solving 7×7 Hex with domination, fill-in, and virtual connections", 2005). Paths with more than k empty cells are
//! of no use, and neither are cells on no other path.

use super::board::{Board, Cells, STONES_MAX, Side, distance, on_paths};
use super::table::{Key, Table};
use crate::value::Value;

/// The number of stones beyond those of a shortest path from which it is worth while to find out the winner first.
const PROVED_MIN: usize = 2;

#[derive(Debug)]
pub(super) struct Solver {
    board: Board,
    /// The winners of positions.
    proofs: Table<Proof>,
    /// The numbers of stones with which the attacker wins.
    limits: Table<Limits>,
}

/// The winner of a position, with the carrier of the win.
#[derive(Debug, Clone, Copy)]
enum Proof {
    /// The player to move wins.
    Win(Cells),
    /// The player to move loses.
    Loss(Cells),
}

impl Default for Proof {
    fn default() -> Self {
        Self::Loss(0)
    }
}

/// What is known of the number of stones with which the attacker wins.
#[derive(Debug, Clone, Copy, Default)]
struct Limits {
    /// The cells that the win with `wins` stones needs.
    carrier: Cells,
    /// The attacker does not win with so many stones.
    fails: u8,
    /// The attacker wins with so many stones; 0 if no number is known.
    wins: u8,
}

impl Solver {
    pub(super) fn new(size: usize) -> Self {
        Self { board: Board::new(size), proofs: Table::new(), limits: Table::new() }
    }

    /// Returns the value of a position for the player to move, without a swap. Both sets of stones are in the frame of
    /// that player, who connects the top with the bottom. The game is not over.
    pub(super) fn value(&mut self, own: Cells, opponent: Cells) -> Value {
        let mut stones = 1..=STONES_MAX;
        if let Proof::Win(_) = self.prove(Side::Attacker, own, opponent) {
            let soonest = stones.find(|&stones| self.attack(own, opponent, stones).is_some());
            return Value::won_in(2 * soonest.expect("the attacker wins") - 1);
        }
        let [attacker, defender] = [opponent, own].map(|stones| self.board.mirrored(stones));
        let soonest = stones.find(|&stones| self.defend(attacker, defender, stones).is_some());
        Value::lost_in(2 * soonest.expect("the attacker wins"))
    }

    /// Returns whether the player to move wins, without a swap.
    #[cfg(test)]
    pub(super) fn wins(&mut self, own: Cells, opponent: Cells) -> bool {
        matches!(self.prove(Side::Attacker, own, opponent), Proof::Win(_))
    }

    /// Returns the winner of a position, with `side` to move. The game is not over.
    fn prove(&mut self, side: Side, own: Cells, other: Cells) -> Proof {
        let empty = self.board.empty(own, other);
        let own_paths = self.shortest_paths(side, own, other, empty);
        if own_paths.stones == 1 {
            return Proof::Win(lowest(own_paths.cells));
        }
        let other_paths = self.shortest_paths(side.opponent(), other, own, empty);
        // The cells with which the opponent would win at once.
        let threats = if other_paths.stones == 1 { other_paths.cells } else { 0 };
        if threats.count_ones() >= 2 {
            return Proof::Loss(lowest(threats) | lowest(threats & !lowest(threats)));
        }
        let (key, is_turned) = match side {
            Side::Attacker => self.key(own, other, Key::attack),
            Side::Defender => self.key(other, own, Key::defence),
        };
        if let Some(known) = self.proofs.get(key) {
            return self.turned_proof(is_turned, known);
        }
        let mustplay = if threats == 0 { empty } else { threats };
        let (shared, single) = (own_paths.cells & other_paths.cells, own_paths.cells ^ other_paths.cells);
        let proof = self.prove_by([shared, single, !(shared | single)], side, own, other, mustplay, threats);
        self.proofs.put(key, self.turned_proof(is_turned, proof));
        proof
    }

    /// Returns the winner of a position in which the player to move wins, if at all, in the mustplay region. The cells
    /// of the first of `groups` are tried first. `carrier` is a part of that of the opponent's win.
    fn prove_by(
        &mut self,
        groups: [Cells; 3],
        side: Side,
        own: Cells,
        other: Cells,
        mut mustplay: Cells,
        mut carrier: Cells,
    ) -> Proof {
        for group in groups {
            while let Some(cell) = self.board.most_central(mustplay & group) {
                match self.prove(side.opponent(), other, own | 1 << cell) {
                    Proof::Loss(needed) => return Proof::Win(needed | 1 << cell),
                    Proof::Win(needed) => {
                        carrier |= needed;
                        mustplay &= needed;
                    }
                }
            }
        }
        Proof::Loss(carrier)
    }

    /// Returns the carrier of a win with at most `stones` more, with the attacker to move; `None` if there is none. The
    /// edges of the attacker are not connected.
    fn attack(&mut self, attacker: Cells, defender: Cells, stones: usize) -> Option<Cells> {
        let reach = self.board.reach_both(Side::Attacker, attacker, defender, stones);
        let distance = distance(&reach[0], self.board.edges(Side::Attacker)[1], stones)?;
        let empty = self.board.empty(attacker, defender);
        if distance == 1 {
            return Some(lowest(on_paths(&reach, empty, 1)));
        }
        let (key, is_turned) = self.key(attacker, defender, Key::attack);
        if let Some(known) = self.known(key, stones) {
            return known.map(|carrier| self.turned_if(is_turned, carrier));
        }
        let mut is_lost = || matches!(self.prove(Side::Attacker, attacker, defender), Proof::Loss(_));
        if stones >= distance + PROVED_MIN && is_lost() {
            return None;
        }
        // The attacker's shortest paths first, and there the cells that block the defender's.
        let (shortest, all) = (on_paths(&reach, empty, distance), on_paths(&reach, empty, stones));
        let blocking = self.shortest_paths(Side::Defender, defender, attacker, empty).cells;
        let longer = all & !shortest;
        let groups = [shortest & blocking, shortest & !blocking, longer & blocking, longer & !blocking];
        let carrier = groups.into_iter().find_map(|group| self.attack_on(group, attacker, defender, stones));
        self.learn(key, stones, carrier.map(|carrier| self.turned_if(is_turned, carrier)));
        carrier
    }

    /// Returns the carrier of a win that begins on one of `cells`.
    fn attack_on(&mut self, mut cells: Cells, attacker: Cells, defender: Cells, stones: usize) -> Option<Cells> {
        while let Some(cell) = self.board.most_central(cells) {
            if let Some(carrier) = self.defend(attacker | 1 << cell, defender, stones - 1) {
                return Some(carrier | 1 << cell);
            }
            cells &= !(1 << cell);
        }
        None
    }

    /// Returns the carrier of a win with at most `stones` more, with the defender to move; `None` if there is none. The
    /// edges of the attacker are not connected.
    fn defend(&mut self, attacker: Cells, defender: Cells, stones: usize) -> Option<Cells> {
        let reach = self.board.reach_both(Side::Attacker, attacker, defender, stones);
        let distance = distance(&reach[0], self.board.edges(Side::Attacker)[1], stones)?;
        let empty = self.board.empty(attacker, defender);
        // The cells with which the attacker wins at once: the defender can take one of them.
        let threats = if distance == 1 { on_paths(&reach, empty, 1) } else { 0 };
        if threats.count_ones() >= 2 {
            return Some(lowest(threats) | lowest(threats & !lowest(threats)));
        }
        let (key, is_turned) = self.key(attacker, defender, Key::defence);
        if let Some(known) = self.known(key, stones) {
            return known.map(|carrier| self.turned_if(is_turned, carrier));
        }
        let mut is_lost = || matches!(self.prove(Side::Defender, defender, attacker), Proof::Win(_));
        if stones >= distance + PROVED_MIN && is_lost() {
            return None;
        }
        let replies = if threats == 0 { on_paths(&reach, empty, stones) } else { threats };
        let carrier = self.answer_all(attacker, defender, stones, replies).map(|carrier| carrier | threats);
        self.learn(key, stones, carrier.map(|carrier| self.turned_if(is_turned, carrier)));
        carrier
    }

    /// Returns the carrier of the attacker's wins against every one of `replies`; `None` if one of them has none.
    fn answer_all(&mut self, attacker: Cells, defender: Cells, stones: usize, replies: Cells) -> Option<Cells> {
        let [top, bottom] = self.board.edges(Side::Attacker);
        let mut by_distance = Vec::with_capacity(replies.count_ones() as usize);
        for cell in self.board.outwards(replies) {
            let reach = self.board.reach(top, attacker, defender | 1 << cell, stones);
            // A reply that leaves the attacker too few stones refutes the win without a search.
            by_distance.push((distance(&reach, bottom, stones)?, cell));
        }
        // The replies that delay the attacker most are those that refute a win most often.
        by_distance.sort_by_key(|&(distance, _)| std::cmp::Reverse(distance));
        let (mut mustplay, mut carrier) = (replies, 0);
        for (_, cell) in by_distance {
            if mustplay >> cell & 1 == 1 {
                let needed = self.attack(attacker, defender | 1 << cell, stones)?;
                carrier |= needed;
                mustplay &= needed;
            }
        }
        Some(carrier)
    }

    /// Returns whether the attacker wins with at most `stones` more, if that is known: the carrier, or `None`.
    fn known(&self, key: Key, stones: usize) -> Option<Option<Cells>> {
        let Limits { carrier, fails, wins } = self.limits.get(key)?;
        if wins > 0 && stones >= usize::from(wins) {
            return Some(Some(carrier));
        }
        (stones <= usize::from(fails)).then_some(None)
    }

    /// Stores whether the attacker wins with at most `stones` more.
    fn learn(&mut self, key: Key, stones: usize, carrier: Option<Cells>) {
        let stones = u8::try_from(stones).expect("a board has at most 25 stones");
        let known = self.limits.get(key).unwrap_or_default();
        let limits = match carrier {
            Some(carrier) => Limits { carrier, wins: stones, ..known },
            None => Limits { fails: stones, ..known },
        };
        self.limits.put(key, limits);
    }

    /// Returns the shortest paths of a player between both edges.
    fn shortest_paths(&self, side: Side, own: Cells, other: Cells, empty: Cells) -> Paths {
        let reach = self.board.reach_both(side, own, other, STONES_MAX);
        let stones = distance(&reach[0], self.board.edges(side)[1], STONES_MAX);
        let stones = stones.expect("the edges of the opponent are not connected");
        Paths { stones, cells: on_paths(&reach, empty, stones) }
    }

    /// Returns the key of a position or of that turned by half a turn, whichever is smaller, and whether it is turned.
    fn key(&self, attacker: Cells, defender: Cells, key: fn(Cells, Cells) -> Key) -> (Key, bool) {
        let turned = [attacker, defender].map(|stones| self.board.turned(stones));
        let is_turned = turned < [attacker, defender];
        (if is_turned { key(turned[0], turned[1]) } else { key(attacker, defender) }, is_turned)
    }

    fn turned_if(&self, is_turned: bool, cells: Cells) -> Cells {
        if is_turned { self.board.turned(cells) } else { cells }
    }

    fn turned_proof(&self, is_turned: bool, proof: Proof) -> Proof {
        match proof {
            Proof::Win(cells) => Proof::Win(self.turned_if(is_turned, cells)),
            Proof::Loss(cells) => Proof::Loss(self.turned_if(is_turned, cells)),
        }
    }
}

/// The shortest paths of a player between both edges.
#[derive(Debug, Clone, Copy)]
struct Paths {
    /// The number of stones that complete one of them.
    stones: usize,
    /// Their empty cells.
    cells: Cells,
}

/// Returns the lowest cell of a set.
fn lowest(cells: Cells) -> Cells {
    cells & cells.wrapping_neg()
}
